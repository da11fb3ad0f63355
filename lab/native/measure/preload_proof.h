// Whether the dynamic loader has really loaded each library that we asked it to preload.
//
// The loader ignores LD_PRELOAD without failing (for a static program, another architecture, a
// set-user-ID file), and a comparison of one allocator with itself looks perfectly plausible. A
// sample may come before the loader has got that far, so absence is claimed only with evidence that
// the time for loading preloads has passed.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "launch/options.h"
#include "launch/tree_end.h"

namespace ts {

enum class Mapped { unknown, no, yes };

inline constexpr Nanoseconds first_wait_ns =
    300 * ns_per_us;  // the loader maps preloads first of all; /bin/true lives about 1 ms

// "address permissions offset device inode   path": the path starts at the first slash or bracket.
inline const char* path_of(const char* maps_line) {
  const char* const path = std::strpbrk(maps_line, "/[");
  return path != nullptr ? path : "";
}

inline bool is_same_library(const char* asked, const char* mapped) {
  const bool was_searched_by_loader = std::strchr(asked, '/') == nullptr;
  return std::strcmp(asked, was_searched_by_loader ? base_name(mapped) : mapped) == 0;
}

class PreloadProof {
 public:
  // `options` must outlive the proof.
  PreloadProof(const Options& options, Nanoseconds start_ns)
      : options_{options},
        wait_ns_{first_wait_ns},
        due_ns_{options.preload_count == 0 ? never_ns : start_ns + first_wait_ns} {}

  // When to sample next; never once every answer is known.
  Nanoseconds due_ns() const { return due_ns_; }

  // Two kinds of evidence that a missing library will not be loaded later: exec maps the vdso last,
  // so a program without an interpreter by then is static; and glibc's loader maps the preloads
  // before the libraries that the program needs, one of them libc. It takes two samples: the maps are
  // read piece by piece, without stopping the program, which may exec or change its mappings in
  // between.
  void look(pid_t process) {
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

  Mapped verdict(std::size_t index) const { return verdicts_[index]; }
  Nanoseconds cost_ns() const { return cost_ns_; }

 private:
  struct MapsSummary {
    bool is_complete = false;  // the kernel has mapped all that exec maps
    bool has_interpreter = false;
    bool has_libc = false;
  };

  MapsSummary read_maps(pid_t process) {
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

  void note_mapped(const char* path) {
    for (std::size_t i = 0; i < options_.preload_count; ++i) {
      if (is_same_library(options_.preloads[i].resolved, path)) verdicts_[i] = Mapped::yes;
    }
  }

  const Options& options_;
  Nanoseconds wait_ns_;
  Nanoseconds due_ns_;
  Nanoseconds cost_ns_ = 0;
  Mapped verdicts_[max_preloads] = {};
  bool is_missing_[max_preloads] = {};  // at the last sample, after the time for loading it
};

}  // namespace ts
