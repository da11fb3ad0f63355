// Reading /proc/PID/maps of the root; see preload_proof.h.
#include "measure/preload_proof.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "launch/tree_end.h"

namespace ts {
namespace {

constexpr Nanoseconds first_wait_ns =
    300 * ns_per_us;  // the loader maps preloads first of all; /bin/true lives about 1 ms

// "address permissions offset device inode   path": the path starts at the first slash or bracket.
const char* path_of(const char* maps_line) {
  const char* const path = std::strpbrk(maps_line, "/[");
  return path != nullptr ? path : "";
}

bool is_same_library(const char* asked, const char* mapped) {
  const bool was_searched_by_loader = std::strchr(asked, '/') == nullptr;
  return std::strcmp(asked, was_searched_by_loader ? base_name(mapped) : mapped) == 0;
}

}  // namespace

PreloadProof::PreloadProof(const Options& options, Nanoseconds start_ns)
    : options_{options},
      wait_ns_{first_wait_ns},
      due_ns_{options.preload_count == 0 ? never_ns : start_ns + first_wait_ns} {}

void PreloadProof::note_mapped(const char* path) {
  for (std::size_t i = 0; i < options_.preload_count; ++i) {
    if (is_same_library(options_.preloads[i].resolved, path)) verdicts_[i] = Mapped::yes;
  }
}

PreloadProof::MapsSummary PreloadProof::read_maps(pid_t process) {
  char path[64];
  char executable[PATH_MAX];
  MapsSummary summary;
  format(path, sizeof path, "/proc/%d/exe", process);
  const ssize_t length = readlink(path, executable, sizeof executable - 1);
  if (length < 0) return summary;
  executable[length] = '\0';
  format(path, sizeof path, "/proc/%d/maps", process);
  PieceReader maps{path};
  while (const char* line = maps.next('\n')) {
    const char* const mapped = path_of(line);
    if (std::strcmp(mapped, "[vdso]") == 0) summary.is_complete = true;
    if (*mapped != '/') continue;
    note_mapped(mapped);
    if (std::strcmp(mapped, executable) != 0) summary.has_interpreter = true;
    if (std::strcmp(base_name(mapped), "libc.so.6") == 0) summary.has_libc = true;
  }
  return summary;
}

// Two kinds of evidence that a missing library will not be loaded later: exec maps the vdso last,
// so a program without an interpreter by then is static; and glibc's loader maps the preloads
// before the libraries that the program needs, one of them libc. It takes two samples: the maps are
// read piece by piece, without stopping the program, which may exec or change its mappings in
// between.
void PreloadProof::look(pid_t process) {
  const Nanoseconds begin = cpu_time_ns();
  const MapsSummary summary = read_maps(process);
  const bool is_static = summary.is_complete && !summary.has_interpreter;
  bool all_known = true;
  for (std::size_t i = 0; i < options_.preload_count; ++i) {
    if (verdicts_[i] == Mapped::unknown && (is_static || summary.has_libc)) {
      if (is_missing_[i]) verdicts_[i] = Mapped::no;
      is_missing_[i] = true;
    }
    if (verdicts_[i] == Mapped::unknown) all_known = false;
  }
  wait_ns_ *= 2;
  due_ns_ = all_known ? never_ns : now_ns() + wait_ns_;
  cost_ns_ += cpu_time_ns() - begin;
}

}  // namespace ts
