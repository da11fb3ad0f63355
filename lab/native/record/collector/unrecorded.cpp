#include "record/collector/unrecorded.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <iterator>

#include "common/system.h"

namespace ts::record {
namespace {

constexpr char shim_name[] = "libtsmalloc-record.so";
constexpr std::size_t max_programs = 1000;

std::string proc(pid_t pid, const char* what) {
  return "/proc/" + std::to_string(pid) + "/" + what;
}

std::string read_link(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t length = readlink(path.c_str(), target, sizeof target);
  return length > 0 ? std::string{target, static_cast<std::size_t>(length)} : std::string{};
}

std::string read_all(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

}  // namespace

void Unrecorded::add(const std::string& name) {
  const bool is_known = std::ranges::find(programs_, name) != programs_.end();
  if (!is_known && programs_.size() < max_programs) programs_.push_back(name);
}

// A process seen twice with the same file, with enough time to begin, is not going to.
void Unrecorded::scan(ProcessTree& tree, Collector& collector) {
  std::map<pid_t, std::string> suspects;
  tree.refresh();
  for (const pid_t pid : tree.processes()) {
    const std::string file = read_link(proc(pid, "exe"));
    if (file.empty()) continue;  // it has ended
    const std::string* const program = collector.program_of(pid);
    if (program != nullptr &&
        *program == std::string{base_name(file.c_str())}.substr(0, name_bytes - 1))
      continue;
    const auto suspect = suspects_.find(pid);
    const bool is_second_look = suspect != suspects_.end() && suspect->second == file;
    // A child of vfork, or one that has not allocated yet, has its parent's mappings.
    if (is_second_look && read_all(proc(pid, "maps")).find(shim_name) == std::string::npos) {
      add(base_name(file.c_str()));
    }
    suspects[pid] = file;
  }
  suspects_ = std::move(suspects);
}

void Unrecorded::check_ended(pid_t pid, const Collector& collector) {
  if (collector.is_known_process(pid)) return;
  std::string name = read_all(proc(pid, "comm"));
  if (!name.empty() && name.back() == '\n') name.pop_back();
  // The kernel keeps only the beginning of a name; look() may have seen all of it.
  constexpr std::size_t kept_bytes = 15;
  const bool is_cut = name.size() == kept_bytes;
  const bool is_known = std::ranges::any_of(programs_, [&](const std::string& program) {
    return is_cut && program.compare(0, name.size(), name) == 0;
  });
  if (!is_known) add(name);
}

}  // namespace ts::record
