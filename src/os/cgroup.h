// The control groups (cgroups(7)) that limit the memory of the process: the smallest limit of its
// own group and of all above it, as far as they can be seen. Version 2 and version 1, at the usual
// places under /sys/fs/cgroup. Every question opens and closes its files; nothing is kept open. It
// refuses to tell why there is no answer, to wait, and to allocate.
#pragma once

#include <cstddef>

namespace ts::os {

struct Cgroup {
  std::size_t limit_bytes = 0;  // 0: none
  bool is_version_1 = false;
  char folder[512] = {};  // of the group that has this limit
};

// Finds the group with the smallest limit. False, with `group` empty, where none has one, or none
// can be read. `root` is put before each path: "" but in tests.
bool find_cgroup(const char* root, Cgroup& group) noexcept;

// The bytes that the group uses; 0 if that cannot be read. Beyond `enough`, file pages that the
// system drops first do not count, which takes a second, longer file to read.
std::size_t used_by(const Cgroup& group, std::size_t enough) noexcept;

// The bytes of memory of the machine.
std::size_t machine_memory() noexcept;

// Whether so many are more than its memory and swap; false if the system does not tell.
bool exceeds_machine(std::size_t bytes) noexcept;

}  // namespace ts::os
