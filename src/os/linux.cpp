// The Linux part of os.h: memory, waiting, writing. Interpreting failures is left to the caller.
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include <bit>
#include <cerrno>

#include "base/bits.h"
#include "base/platform.h"
#include "os/cgroup.h"
#include "os/mapping.h"
#include "os/os.h"
#include "os/refusals.h"
#include "os/system_call.h"

namespace ts::os {
namespace {

// The result of a request for memory or address space; null if it was refused.
void* granted(long answer) noexcept {
  if (!is_error(answer)) return reinterpret_cast<void*>(answer);
  if (answer == -ENOMEM) note_refusal();
  return nullptr;
}

constexpr int reserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

}  // namespace

// ThreadSanitizer builds use the C library's names, which it intercepts.
long map_pages(void* at, std::size_t bytes, int protection, int flags) noexcept {
#if defined(TS_CALLS_THROUGH_LIBC)
  const ErrnoKept kept;
  void* const placed = ::mmap(at, bytes, protection, flags, -1, 0);
  return placed == MAP_FAILED ? -errno : static_cast<long>(address_of(placed));
#else
  return call(SYS_mmap, at, bytes, protection, flags, -1, 0);
#endif
}

bool place(void* begin, std::size_t bytes, int protection, int flags) noexcept {
  flags |= MAP_PRIVATE | MAP_ANONYMOUS;
  void* const placed = granted(map_pages(begin, bytes, protection, flags));
  if (placed != nullptr && placed != begin) unmap_unused(placed, bytes);
  return placed == begin;
}

// Uses a call that has no effect except to reject an address that is not page-aligned. (The C
// library's sysconf() and getauxval() may be interposed.)
std::size_t page_bytes() noexcept {
  constexpr std::size_t least = 4096;
  if constexpr (max_os_page_bytes == least) return least;
  static constinit std::atomic<std::size_t> cached{0};
  std::size_t bytes = cached.load(std::memory_order_relaxed);  // any thread computes the same
  if (bytes == 0) {
    bytes = least;
    while (bytes < max_os_page_bytes && call(SYS_mprotect, bytes, 0, PROT_NONE) != 0) bytes *= 2;
    cached.store(bytes, std::memory_order_relaxed);
  }
  return bytes;
}

unsigned processor_count() noexcept {
  unsigned long allowed[128] = {};  // room for 8,192 CPUs
  if (is_error(call(SYS_sched_getaffinity, 0, sizeof allowed, allowed))) return 1;
  int count = 0;
  for (const unsigned long word : allowed) count += std::popcount(word);
  return count > 0 ? static_cast<unsigned>(count) : 1;
}

void* map(std::size_t bytes) noexcept {
  return granted(map_pages(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS));
}

bool unmap_unused(void* begin, std::size_t bytes) noexcept {
#if defined(TS_CALLS_THROUGH_LIBC)
  const ErrnoKept kept;
  return ::munmap(begin, bytes) == 0;
#else
  return call(SYS_munmap, begin, bytes) == 0;
#endif
}

void* reserve(std::size_t bytes) noexcept {
  return granted(map_pages(nullptr, bytes, PROT_NONE, reserved));
}

bool reserve_at(void* begin, std::size_t bytes) noexcept {
  return place(begin, bytes, PROT_NONE, reserved);
}

bool map_at(void* begin, std::size_t bytes) noexcept {
  return place(begin, bytes, PROT_READ | PROT_WRITE, 0);
}

// Away from other mappings: programs lie at 0x400000, or above 0x5555'5555'4000 with their break
// after them. The kernel places mappings downwards from 0x7fff'ffff'f000, or upwards from
// 0x2aaa'aaaa'a000 if the stack is unlimited. Sanitizers' shadow memory ends at 0x1000'7fff'8000,
// and Valgrind has nothing above 0x1000'0000'0000.
void* lonely_address(unsigned attempt, std::size_t bytes) noexcept {
  constexpr std::uintptr_t unit = std::uintptr_t{2} << 20;
  constexpr std::uintptr_t spread = std::uintptr_t{1} << 42;
  constexpr std::uintptr_t first[] = {0x3800'0000'0000, 0x4000'0000'0000, 0x0200'0000'0000};
  constexpr std::size_t most_bytes = 2 * spread + spread / 2;
  if (attempt >= sizeof first / sizeof *first || bytes > most_bytes) return nullptr;
  // As random as the addresses of the stack and the libraries, and constant if address space layout
  // randomization is off.
  const int on_stack = 0;
  const std::uint64_t places =
      address_of(&on_stack) ^ mix(reinterpret_cast<std::uintptr_t>(&lonely_address));
  return reinterpret_cast<void*>(first[attempt] + mix(places + attempt) % (spread / unit) * unit);
}

// MAP_NORESERVE memory is not counted by the kernel, neither here nor at a fork, where it would
// otherwise refuse a process whose freed and live blocks together exceed the machine's memory. A
// single request that exceeds it can never be filled, so for that one we ask by mapping memory that
// counts.
bool commit(void* begin, std::size_t bytes) noexcept {
  const auto at = static_cast<long>(address_of(begin));
  constexpr int counted = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS;
  const bool is_counted =
      exceeds_machine(bytes) && map_pages(begin, bytes, PROT_NONE, counted) == at;
  const long answer = call(SYS_mprotect, begin, bytes, PROT_READ | PROT_WRITE);
  if (answer == 0) return true;
  if (answer == -ENOMEM) note_refusal();
  if (is_counted) decommit(begin, bytes);
  return false;
}

// Replaces the old mapping: even if inaccessible, it would count as memory of the process.
bool decommit(void* begin, std::size_t bytes) noexcept {
  return map_pages(begin, bytes, PROT_NONE, MAP_FIXED | reserved) ==
         static_cast<long>(address_of(begin));
}

bool remap(void* begin, std::size_t bytes) noexcept {
  // Through a mapping that does not count as memory: if it refuses one that does, Linux before 6.12
  // may leave a hole.
  return !decommit(begin, bytes) || call(SYS_mprotect, begin, bytes, PROT_READ | PROT_WRITE) == 0;
}

bool discard_unseen(void* begin, std::size_t bytes) noexcept {
  return call(SYS_madvise, begin, bytes, MADV_DONTNEED) == 0;
}

void prefer_huge_pages(void* begin, std::size_t bytes) noexcept {
  call(SYS_madvise, begin, bytes, MADV_HUGEPAGE);
}

void refuse_huge_pages(void* begin, std::size_t bytes) noexcept {
  call(SYS_madvise, begin, bytes, MADV_NOHUGEPAGE);
}

void wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
          std::uint32_t kinds) noexcept {
  call(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, expected, nullptr, nullptr, kinds);
}

std::uint32_t thread_id() noexcept { return static_cast<std::uint32_t>(call(SYS_gettid)); }
bool has_thread(std::uint32_t id) noexcept {
  return call(SYS_tgkill, call(SYS_getpid), id, 0) == 0;
}

std::uint64_t process_id() noexcept { return static_cast<std::uint64_t>(call(SYS_getpid)); }

void name_thread(const char* name) noexcept { call(SYS_prctl, PR_SET_NAME, name); }

void wait_for(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
              std::uint32_t milliseconds) noexcept {
  const timespec time{static_cast<time_t>(milliseconds / 1000),
                      static_cast<long>(milliseconds % 1000) * 1'000'000};
  call(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, &time);
}

void wake(const std::atomic<std::uint32_t>& word, int count, std::uint32_t kinds) noexcept {
  call(SYS_futex, &word, FUTEX_WAKE_BITSET_PRIVATE, count, nullptr, nullptr, kinds);
}

int write(int descriptor, const char* text, std::size_t bytes) noexcept {
  while (bytes != 0) {
    const long written = call(SYS_write, descriptor, text, bytes);
    if (written == -EINTR) continue;
    if (written <= 0) return written < 0 ? static_cast<int>(-written) : EIO;
    text += written;
    bytes -= static_cast<std::size_t>(written);
  }
  return 0;
}

// Not abort(), which may be interposed, while the caller holds locks.
void abort_process() noexcept {
  struct KernelAction {       // of rt_sigaction(2)
    void* handler = nullptr;  // SIG_DFL
    unsigned long words[3] = {};
  };
  constexpr std::uint64_t only_abort = std::uint64_t{1} << (SIGABRT - 1);
  constexpr KernelAction by_default;
  const long process = call(SYS_getpid);
  const long thread = call(SYS_gettid);
  call(SYS_rt_sigprocmask, SIG_UNBLOCK, &only_abort, nullptr, sizeof only_abort);
  call(SYS_tgkill, process, thread, SIGABRT);
  // A handler returned, or the signal is ignored.
  call(SYS_rt_sigaction, SIGABRT, &by_default, nullptr, sizeof only_abort);
  call(SYS_tgkill, process, thread, SIGABRT);
  for (;;) call(SYS_exit_group, 127);
}

}  // namespace ts::os
