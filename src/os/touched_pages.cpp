// Which pages the program has touched, as the page map of the process tells.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/bits.h"
#include "os/mapping.h"
#include "os/os.h"
#include "os/quiet_file.h"

namespace ts::os {
// From 64 on, the kernel makes the table of files longer, for which a process with threads waits
// milliseconds.
long open_quietly(const char* path) noexcept {
  constexpr long high_number = 56;
  const long opened = ::syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (opened < 0) return opened;
  const long moved = ::syscall(SYS_fcntl, opened, F_DUPFD_CLOEXEC, high_number);
  if (moved < 0) return opened;
  ::syscall(SYS_close, opened);
  return moved;
}

// By /proc, and not by mincore(2), which the filters of sandboxed services kill a process for
// (systemd's @system-service lacks it).
std::size_t touched_pages(const void* begin, std::size_t bytes, std::size_t looked_at) noexcept {
  const ErrnoKept kept;
  const long pagemap = open_quietly("/proc/thread-self/pagemap");
  if (pagemap < 0) return untold;
  std::size_t touched = 0;
  bool is_ours = true;
  const std::size_t step = bytes / looked_at;
  for (std::size_t i = 0; touched != untold && i < looked_at; ++i) {
    // proc_pid_pagemap(5). A page of zeroes that was only read is in memory, and shared.
    constexpr std::uint64_t in_memory = std::uint64_t{1} << 63;
    constexpr std::uint64_t swapped = std::uint64_t{1} << 62;
    constexpr std::uint64_t exclusive = std::uint64_t{1} << 56;
    // Anywhere in its part of the range: programs use memory in even distances, too.
    const std::size_t at = reinterpret_cast<std::uintptr_t>(begin) + i * step + mix(i) % step;
    std::uint64_t entry = 0;
    const long read =
        ::syscall(SYS_pread64, pagemap, &entry, sizeof entry, at / page_bytes() * sizeof entry);
    const bool is_own = (entry & in_memory) != 0 && (entry & exclusive) != 0;
    touched += is_own || (entry & swapped) != 0 ? 1 : 0;
    if (read == sizeof entry) continue;
    touched = untold;
    is_ours = read >= 0 || errno != EBADF;  // the program closed it
  }
  if (is_ours) ::syscall(SYS_close, pagemap);
  return touched;
}

}  // namespace ts::os
