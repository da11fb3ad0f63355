// The Linux side of os.h: the only system calls of the allocators. It refuses to interpret
// failures; the caller knows what they mean.
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "os/os.h"

namespace ts::os {

std::size_t page_bytes() noexcept {
  static constinit std::atomic<std::size_t> cached{0};
  std::size_t bytes = cached.load(std::memory_order_relaxed);  // any thread computes the same value
  if (bytes == 0) {
    bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    cached.store(bytes, std::memory_order_relaxed);
  }
  return bytes;
}

unsigned processor_count() noexcept {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  const int count = CPU_COUNT(&allowed);
  return count > 0 ? static_cast<unsigned>(count) : 1;
}

void* current_break() noexcept { return grow_break(0); }

void* grow_break(std::size_t bytes) noexcept {
  if (bytes > static_cast<std::size_t>(PTRDIFF_MAX)) return nullptr;
  void* old_end = ::sbrk(static_cast<std::intptr_t>(bytes));
  return old_end == reinterpret_cast<void*>(-1) ? nullptr : old_end;
}

bool shrink_break(const void* expected_end, std::size_t bytes) noexcept {
  if (bytes > static_cast<std::size_t>(PTRDIFF_MAX) || current_break() != expected_end)
    return false;
  return ::sbrk(-static_cast<std::intptr_t>(bytes)) == expected_end;
}

void* map(std::size_t bytes) noexcept {
  void* begin = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return begin == MAP_FAILED ? nullptr : begin;
}

bool unmap(void* begin, std::size_t bytes) noexcept { return ::munmap(begin, bytes) == 0; }

void* reserve(std::size_t bytes) noexcept {
  void* begin =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return begin == MAP_FAILED ? nullptr : begin;
}

bool commit(void* begin, std::size_t bytes) noexcept {
  return ::mprotect(begin, bytes, PROT_READ | PROT_WRITE) == 0;
}

bool move_pages(void* from, void* to, std::size_t bytes) noexcept {
  constexpr int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;  // Linux 5.7
  if (::mremap(from, bytes, bytes, flags, to) != MAP_FAILED) return true;
  // Until Linux 6.17 a range of several mappings is refused, after `to` was unmapped. Since then
  // each mapping moves by itself, and the process may reach its limit of mappings in between: what
  // went already comes back as a copy.
  if (errno != ENOMEM) return false;
  const std::size_t page = page_bytes();
  for (std::size_t at = 0; at < bytes; at += page) {
    unsigned char resident = 0;
    auto* const moved = static_cast<std::byte*>(to) + at;
    if (::mincore(moved, page, &resident) != 0) continue;  // not mapped: a hole
    const bool is_zero = *moved == std::byte{0} && std::memcmp(moved, moved + 1, page - 1) == 0;
    if (!is_zero) std::memcpy(static_cast<std::byte*>(from) + at, moved, page);
  }
  return false;
}

void prefer_huge_pages(void* begin, std::size_t bytes) noexcept {
  ::madvise(begin, bytes, MADV_HUGEPAGE);
}

void refuse_huge_pages(void* begin, std::size_t bytes) noexcept {
  ::madvise(begin, bytes, MADV_NOHUGEPAGE);
}

// By /proc, and not by mincore(2), which the filters of sandboxed services kill a process for
// (systemd dropped it from @system-service in 2019).
std::size_t touched_pages(const void* begin, std::size_t bytes, std::size_t looked_at) noexcept {
  const int kept = errno;
  std::size_t touched = 0;
  const long pagemap = ::syscall(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  const std::size_t step = bytes / looked_at;
  for (std::size_t i = 0; pagemap >= 0 && i < looked_at; ++i) {
    constexpr std::uint64_t in_memory_or_swapped = std::uint64_t{3} << 62;  // proc_pid_pagemap(5)
    const std::size_t at = reinterpret_cast<std::uintptr_t>(begin) + i * step + step / 2;
    std::uint64_t entry = 0;
    ::syscall(SYS_pread64, pagemap, &entry, sizeof entry, at / page_bytes() * sizeof entry);
    touched += (entry & in_memory_or_swapped) != 0 ? 1 : 0;
  }
  if (pagemap >= 0) ::syscall(SYS_close, pagemap);
  errno = kept;
  return touched;
}

std::uint64_t coarse_milliseconds() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 +
         static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000 + 1;
}

bool discard(void* begin, std::size_t bytes) noexcept {
  return ::madvise(begin, bytes, MADV_DONTNEED) == 0;
}

void wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
          std::uint32_t kinds) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, expected, nullptr, nullptr, kinds);
}

void wake(const std::atomic<std::uint32_t>& word, int count, std::uint32_t kinds) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_BITSET_PRIVATE, count, nullptr, nullptr, kinds);
}

bool call_at_thread_exit(void (*on_exit)(void*), void* argument) noexcept {
  // 0: no key yet; otherwise the key plus one. Two threads that create a key at once agree on one
  // by the exchange; the loser deletes its own.
  static constinit std::atomic<std::uint32_t> key_plus_one{0};
  std::uint32_t chosen = key_plus_one.load(std::memory_order_acquire);
  if (chosen == 0) {
    pthread_key_t key;
    if (::pthread_key_create(&key, on_exit) != 0) return false;
    if (key_plus_one.compare_exchange_strong(chosen, key + 1, std::memory_order_acq_rel)) {
      chosen = key + 1;
    } else {
      ::pthread_key_delete(key);
    }
  }
  return ::pthread_setspecific(chosen - 1, argument) == 0;
}

bool call_around_fork(void (*prepare)(), void (*parent)(), void (*child)()) noexcept {
  return ::pthread_atfork(prepare, parent, child) == 0;
}

void write_error(const char* text, std::size_t bytes) noexcept {
  // Nothing can be done about a failure to report a failure; the variable only satisfies
  // warn_unused_result.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, bytes);
}

void abort_process() noexcept { std::abort(); }

}  // namespace ts::os
