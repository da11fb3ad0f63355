// The cgroup (cgroups(7)) that limits the memory of the process: of its own group and all those
// above it that are visible, the one with the smallest limit. Supports version 2 and version 1, at
// the usual paths under /sys/fs/cgroup. Each call opens and closes its files. Nothing here waits or
// allocates, and failures are not explained.
#pragma once

#include <cstddef>

namespace ts::os {

struct Cgroup {
  std::size_t limit_bytes = 0;  // 0: none
  bool is_version_1 = false;
  char folder[512] = {};  // of the group with this limit
};

// Finds the group with the smallest limit. False, with `group` empty, if there is no limit or none
// can be read. `root` is prepended to each path: "" except in tests.
bool find_cgroup(const char* root, Cgroup& group) noexcept;

// The bytes that the group uses; 0 if unknown. If that is more than `enough`, subtracts the file
// pages that the kernel drops first, which means reading a second, longer file.
std::size_t used_by(const Cgroup& group, std::size_t enough) noexcept;

// The machine's memory in bytes.
std::size_t machine_memory() noexcept;

// Whether `bytes` is more than the machine's memory and swap; false if unknown.
bool exceeds_machine(std::size_t bytes) noexcept;

}  // namespace ts::os
