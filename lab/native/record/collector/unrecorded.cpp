#include "record/collector/unrecorded.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <fstream>
#include <iterator>

#include "common/system.h"

namespace ts::record {
namespace {

constexpr char shim_name[] = "libtsmalloc-record.so";
constexpr std::size_t most_programs = 1000;

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

struct ElfFacts {
  bool is_readable = false;
  bool is_64_bit = false;
  bool has_loader = false;
};

ElfFacts read_elf(const std::string& path) {
  ElfFacts facts;
  std::ifstream file{path, std::ios::binary};
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) return facts;
  facts.is_readable = std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0;
  facts.is_64_bit = header.e_ident[EI_CLASS] == ELFCLASS64;
  if (!facts.is_readable || !facts.is_64_bit) return facts;
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!file.read(reinterpret_cast<char*>(&segment), sizeof segment)) break;
    if (segment.p_type == PT_INTERP) facts.has_loader = true;
  }
  return facts;
}

bool gains_rights(pid_t pid) {
  const std::string vector = read_all(proc(pid, "auxv"));
  Elf64_auxv_t entry{};
  for (std::size_t at = 0; at + sizeof entry <= vector.size(); at += sizeof entry) {
    std::memcpy(&entry, vector.data() + at, sizeof entry);
    if (entry.a_type == AT_SECURE) return entry.a_un.a_val != 0;
  }
  return false;
}

std::string reason_for(pid_t pid) {
  const ElfFacts facts = read_elf(proc(pid, "exe"));
  if (!facts.is_readable) return "it cannot be looked at; it may be another user's";
  if (!facts.is_64_bit) return "it is a 32-bit program";
  if (!facts.has_loader) return "it is statically linked";
  if (gains_rights(pid))
    return "it gains rights at its start, and then the loader preloads nothing";
  if (read_all(proc(pid, "environ")).find(shim_name) == std::string::npos) {
    return "it was started with another environment, without LD_PRELOAD";
  }
  return "its loader has not preloaded the recorder, or the ring could not be opened from it";
}

}  // namespace

void Unrecorded::add(const std::string& name, const std::string& reason) {
  const bool is_known = std::any_of(programs_.begin(), programs_.end(),
                                    [&](const Program& each) { return each.name == name; });
  if (!is_known && programs_.size() < most_programs) programs_.push_back({name, reason});
}

// A process that is seen twice with the same file, and had the time to begin, is not going to.
void Unrecorded::look(ProcessTree& tree, Collector& collector) {
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
      add(base_name(file.c_str()), reason_for(pid));
    }
    suspects[pid] = file;
  }
  suspects_ = std::move(suspects);
}

void Unrecorded::look_at_ended(pid_t pid, const Collector& collector) {
  if (collector.has_met(pid)) return;
  std::string name = read_all(proc(pid, "comm"));
  if (!name.empty() && name.back() == '\n') name.pop_back();
  add(name, "it ended before anything was seen of it; it may be statically linked");
}

}  // namespace ts::record
