// The Linux side of os.h: the only system calls of the allocators. It refuses to interpret
// failures; the caller does.
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/bits.h"
#include "os/mapping.h"
#include "os/memory_group.h"
#include "os/os.h"
#include "os/refusals.h"

namespace ts::os {
namespace {

// The answer of a request for memory or address space, null if it was refused.
void* granted(void* answer) noexcept {
  if (answer != MAP_FAILED) return answer;
  if (errno == ENOMEM) note_refusal();
  return nullptr;
}

constexpr int reserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

}  // namespace

bool place(void* begin, std::size_t bytes, int protection, int flags) noexcept {
  const ErrnoKept kept;
  flags |= MAP_PRIVATE | MAP_ANONYMOUS;
  void* const placed = granted(::mmap(begin, bytes, protection, flags, -1, 0));
  if (placed != nullptr && placed != begin) ::munmap(placed, bytes);
  return placed == begin;
}

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
  const ErrnoKept kept;
  // Its failure looks like mmap's: -1.
  return granted(::sbrk(static_cast<std::intptr_t>(bytes)));
}

bool shrink_break(const void* expected_end, std::size_t bytes) noexcept {
  if (bytes > static_cast<std::size_t>(PTRDIFF_MAX) || current_break() != expected_end)
    return false;
  const ErrnoKept kept;
  return ::sbrk(-static_cast<std::intptr_t>(bytes)) == expected_end;
}

void* map(std::size_t bytes) noexcept {
  const ErrnoKept kept;
  return granted(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

bool unmap(void* begin, std::size_t bytes) noexcept {
  const ErrnoKept kept;
  return ::munmap(begin, bytes) == 0;
}

void* reserve(std::size_t bytes) noexcept {
  const ErrnoKept kept;
  return granted(::mmap(nullptr, bytes, PROT_NONE, reserved, -1, 0));
}

bool reserve_at(void* begin, std::size_t bytes) noexcept {
  return place(begin, bytes, PROT_NONE, reserved);
}

bool map_at(void* begin, std::size_t bytes) noexcept {
  return place(begin, bytes, PROT_READ | PROT_WRITE, 0);
}

// Away from other mappings: programs lie at 0x400000 or above 0x5555'5555'4000 with their break
// behind them. The system places mappings downwards from 0x7fff'ffff'f000, or upwards from
// 0x2aaa'aaaa'a000 with an unlimited stack. Sanitizers' shadows end at 0x1000'7fff'8000, and
// valgrind has nothing above 0x1000'0000'0000.
void* lonely_address(unsigned attempt, std::size_t bytes) noexcept {
  constexpr std::uintptr_t unit = std::uintptr_t{2} << 20;
  constexpr std::uintptr_t spread = std::uintptr_t{1} << 42;
  constexpr std::uintptr_t first[] = {0x3800'0000'0000, 0x4000'0000'0000, 0x0200'0000'0000};
  constexpr std::size_t most_bytes = 2 * spread + spread / 2;
  if (attempt >= sizeof first / sizeof *first || bytes > most_bytes) return nullptr;
  // As random as the addresses of the stack and of the libraries, and constant where that
  // randomization is off.
  const int on_stack = 0;
  const std::uint64_t places =
      address_of(&on_stack) ^ mix(reinterpret_cast<std::uintptr_t>(&lonely_address));
  return reinterpret_cast<void*>(first[attempt] + mix(places + attempt) % (spread / unit) * unit);
}

// The kernel counts reserved memory neither here nor at a fork. There it would refuse a process whose
// freed blocks and live ones together are more than the machine has. So it is asked, by a mapping
// that it counts, where one request alone is more than that, which can never be filled.
bool commit(void* begin, std::size_t bytes) noexcept {
  const ErrnoKept kept;
  constexpr int counted = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS;
  const bool is_counted =
      exceeds_machine(bytes) && ::mmap(begin, bytes, PROT_NONE, counted, -1, 0) == begin;
  if (::mprotect(begin, bytes, PROT_READ | PROT_WRITE) == 0) return true;
  if (errno == ENOMEM) note_refusal();
  if (is_counted) decommit(begin, bytes);
  return false;
}

// A new mapping in place of the old one, which would count as memory of the process even if
// inaccessible.
bool decommit(void* begin, std::size_t bytes) noexcept {
  const ErrnoKept kept;
  return ::mmap(begin, bytes, PROT_NONE, MAP_FIXED | reserved, -1, 0) == begin;
}

bool renew(void* begin, std::size_t bytes) noexcept {
  const ErrnoKept kept;
  // By way of a mapping that counts as no memory: of one that does, Linux before 6.12 may leave a hole
  // where it refuses.
  return !decommit(begin, bytes) || ::mprotect(begin, bytes, PROT_READ | PROT_WRITE) == 0;
}

void prefer_huge_pages(void* begin, std::size_t bytes) noexcept {
  const ErrnoKept kept;
  ::madvise(begin, bytes, MADV_HUGEPAGE);
}

void refuse_huge_pages(void* begin, std::size_t bytes) noexcept {
  const ErrnoKept kept;
  ::madvise(begin, bytes, MADV_NOHUGEPAGE);
}

std::uint64_t coarse_milliseconds() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 +
         static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000 + 1;
}

std::uint64_t nanoseconds() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

bool discard(void* begin, std::size_t bytes) noexcept {
  const ErrnoKept kept;
  return ::madvise(begin, bytes, MADV_DONTNEED) == 0;
}

void wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
          std::uint32_t kinds) noexcept {
  const ErrnoKept kept;
  ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, expected, nullptr, nullptr, kinds);
}

std::uint32_t thread_id() noexcept { return static_cast<std::uint32_t>(::syscall(SYS_gettid)); }
bool has_thread(std::uint32_t id) noexcept {
  return ::syscall(SYS_tgkill, ::syscall(SYS_getpid), id, 0) == 0;
}

std::uint64_t process_id() noexcept { return static_cast<std::uint64_t>(::syscall(SYS_getpid)); }

void name_thread(const char* name) noexcept {
  const ErrnoKept kept;
  ::syscall(SYS_prctl, PR_SET_NAME, name);
}

void wait_for(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
              std::uint32_t milliseconds) noexcept {
  const ErrnoKept kept;
  const timespec time{static_cast<time_t>(milliseconds / 1000),
                      static_cast<long>(milliseconds % 1000) * 1'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, &time);
}

void wake(const std::atomic<std::uint32_t>& word, int count, std::uint32_t kinds) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_BITSET_PRIVATE, count, nullptr, nullptr, kinds);
}

int write(int descriptor, const char* text, std::size_t bytes) noexcept {
  // Not write(), where a thread may be cancelled.
  const ErrnoKept kept;
  while (bytes != 0) {
    const long written = ::syscall(SYS_write, descriptor, text, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    text += written;
    bytes -= static_cast<std::size_t>(written);
  }
  return 0;
}

}  // namespace ts::os
