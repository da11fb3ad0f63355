// What /proc reports: which pages the program has touched, and which threads it has.
#include <fcntl.h>

#include <cerrno>

#include "base/bits.h"
#include "os/os.h"
#include "os/quiet_file.h"
#include "os/system_call.h"

namespace ts::os {
// From 64 on, the kernel has to grow the descriptor table, which takes milliseconds in a process
// with threads.
long open_quietly(const char* path) noexcept {
  constexpr long high_number = 56;
  const long opened = call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (opened < 0) return opened;
  const long moved = call(SYS_fcntl, opened, F_DUPFD_CLOEXEC, high_number);
  if (moved < 0) return opened;
  call(SYS_close, opened);
  return moved;
}

// Through /proc instead of mincore(2), for which the filters of sandboxed services kill a process
// (systemd's @system-service lacks it).
std::size_t touched_pages(const void* begin, std::size_t bytes, std::size_t looked_at) noexcept {
  const long pagemap = open_quietly("/proc/thread-self/pagemap");
  if (pagemap < 0) return untold;
  std::size_t touched = 0;
  bool is_ours = true;
  const std::size_t step = bytes / looked_at;
  for (std::size_t i = 0; touched != untold && i < looked_at; ++i) {
    // proc_pid_pagemap(5). A zero page that was only read counts as in memory, and as shared.
    constexpr std::uint64_t in_memory = std::uint64_t{1} << 63;
    constexpr std::uint64_t swapped = std::uint64_t{1} << 62;
    constexpr std::uint64_t exclusive = std::uint64_t{1} << 56;
    // At a random place in its part of the range: programs also use memory at regular intervals.
    const std::size_t at = reinterpret_cast<std::uintptr_t>(begin) + i * step + mix(i) % step;
    std::uint64_t entry = 0;
    const long read =
        call(SYS_pread64, pagemap, &entry, sizeof entry, at / page_bytes() * sizeof entry);
    const bool is_own = (entry & in_memory) != 0 && (entry & exclusive) != 0;
    touched += is_own || (entry & swapped) != 0 ? 1 : 0;
    if (read == sizeof entry) continue;
    touched = untold;
    is_ours = read != -EBADF;  // false: the program closed it
  }
  if (is_ours) call(SYS_close, pagemap);
  return touched;
}

bool has_thread_beside(std::uint32_t id) noexcept {
  const long folder = open_quietly("/proc/thread-self/..");
  if (folder < 0) return false;
  alignas(std::uint64_t) char entries[1024];
  const std::uint32_t passed_over[] = {id, thread_id(), static_cast<std::uint32_t>(process_id())};
  bool is_found = false;
  long bytes = 0;
  while (!is_found && (bytes = call(SYS_getdents64, folder, entries, sizeof entries)) > 0) {
    for (long at = 0; at < bytes;) {
      // struct linux_dirent64 of getdents(2): 8 bytes, 8 bytes, length, type, name
      const char* const entry = entries + at;
      at += static_cast<unsigned char>(entry[16]) | static_cast<unsigned char>(entry[17]) << 8;
      std::uint32_t thread = 0;
      for (const char* name = entry + 19; *name >= '0' && *name <= '9'; ++name)
        thread = thread * 10 + static_cast<std::uint32_t>(*name - '0');
      bool is_other = thread != 0;
      for (const std::uint32_t other : passed_over) is_other = is_other && thread != other;
      is_found = is_found || is_other;
    }
  }
  call(SYS_close, folder);
  return is_found;
}

}  // namespace ts::os
