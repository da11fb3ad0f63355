#include "reliability/faults/system_calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>

#include "base/bits.h"

extern "C" {
// The C library's own, by the names that it keeps for itself.
void* __sbrk(std::intptr_t) noexcept;
int __pthread_key_create(pthread_key_t*, void (*)(void*)) noexcept;
}

namespace ts::faults {
namespace {

// Threads of a run take turns, so that nothing here is used by two at once but with a join between.
Plan plan;
Record* record = nullptr;
std::atomic<bool> armed{false};
std::uint64_t milliseconds_passed = 0;

// The system itself.
long ask(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
#if defined __x86_64__
  long result = 0;
  asm volatile(
      "mov %5, %%r10\n\t"
      "mov %6, %%r8\n\t"
      "mov %7, %%r9\n\t"
      "syscall"
      : "=a"(result)
      : "a"(number), "D"(a), "S"(b), "d"(c), "m"(d), "m"(e), "m"(f)
      : "rcx", "r8", "r9", "r10", "r11", "memory");
  return result;
#else
#if defined __aarch64__
  register long r0 asm("x0") = a, r1 asm("x1") = b, r2 asm("x2") = c, r3 asm("x3") = d;
  register long r4 asm("x4") = e, r5 asm("x5") = f, r8 asm("x8") = number;
  asm volatile("svc 0"
               : "+r"(r0)
               : "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5), "r"(r8)
               : "memory");
#else
  register long r0 asm("a0") = a, r1 asm("a1") = b, r2 asm("a2") = c, r3 asm("a3") = d;
  register long r4 asm("a4") = e, r5 asm("a5") = f, r8 asm("a7") = number;
  asm volatile("ecall"
               : "+r"(r0)
               : "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5), "r"(r8)
               : "memory");
#endif
  return r0;
#endif
}

long as_number(const void* p) { return reinterpret_cast<long>(p); }

// As libc's wrappers give it on: -1, and the error in errno.
long answer(long result) {
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

struct Trace {
  std::uintptr_t caller;
  bool is_above = false;
  unsigned count = 0;
  std::uint64_t place;
};

_Unwind_Reason_Code add_frame(_Unwind_Context* context, void* argument) {
  auto& trace = *static_cast<Trace*>(argument);
  const std::uintptr_t address = _Unwind_GetIP(context);
  trace.is_above = trace.is_above || address == trace.caller;
  if (trace.is_above) trace.place = mix(trace.place ^ address);
  return trace.is_above && ++trace.count == 3 ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

// Whether this call is to fail; written down in any case.
bool fails(Call call, void* caller) {
  if (!armed.load(std::memory_order_relaxed)) return false;
  const std::uint32_t number = record->calls++;
  const bool is_chosen = number >= plan.first && number - plan.first < plan.count;
  Trace trace{.caller = address_of(caller), .place = static_cast<std::uint64_t>(call) + 1};
  if (number < most_calls) {
    _Unwind_Backtrace(add_frame, &trace);
    record->places[number] = trace.place;
    record->kinds[number] = call;
  }
  if (!is_chosen) return false;
  if (number < most_calls) record->failed_places[record->failed] = trace.place;
  ++record->failed;
  if (call != Call::key_create && call != Call::set_specific) errno = ENOMEM;
  return true;
}

// libc has no second name for it that can be linked to.
using SetSpecific = int (*)(pthread_key_t, const void*);
SetSpecific libc_set_specific() {
  static constinit SetSpecific found = nullptr;
  if (found == nullptr)
    found = reinterpret_cast<SetSpecific>(::dlsym(RTLD_NEXT, "pthread_setspecific"));
  return found;
}

#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

}  // namespace

const char* name_of(Call call) noexcept {
  static constexpr const char* names[call_kinds] = {"mmap",
                                                    "munmap",
                                                    "mremap",
                                                    "mprotect",
                                                    "madvise",
                                                    "sbrk",
                                                    "pthread_key_create",
                                                    "pthread_setspecific",
                                                    "openat or pread"};
  return names[static_cast<std::size_t>(call)];
}

void arm(const Plan& next_plan, Record& into) noexcept {
  plan = next_plan;
  record = &into;
  armed = true;
}

void disarm() noexcept { armed = false; }

void pass_time(unsigned milliseconds) noexcept { milliseconds_passed += milliseconds; }

}  // namespace ts::faults

using namespace ts::faults;

extern "C" {

void* mmap(void* begin, std::size_t bytes, int protection, int flags, int file,
           off_t offset) noexcept {
  if (fails(Call::mmap, CALLER)) return MAP_FAILED;
  if (armed.load(std::memory_order_relaxed)) {
    const World& world = plan.world;
    const bool is_placed = begin != nullptr && (flags & MAP_FIXED) == 0;
    record->has_placed = record->has_placed || is_placed;
    if (world.most_at_once != 0 && bytes > world.most_at_once) {
      errno = ENOMEM;
      return MAP_FAILED;
    }
    if (world.no_placement && is_placed) begin = nullptr;
  }
  return reinterpret_cast<void*>(answer(
      ask(SYS_mmap, as_number(begin), static_cast<long>(bytes), protection, flags, file, offset)));
}

int munmap(void* begin, std::size_t bytes) noexcept {
  if (fails(Call::munmap, CALLER)) return -1;
  return static_cast<int>(answer(ask(SYS_munmap, as_number(begin), static_cast<long>(bytes))));
}

int mprotect(void* begin, std::size_t bytes, int protection) noexcept {
  if (fails(Call::mprotect, CALLER)) return -1;
  return static_cast<int>(
      answer(ask(SYS_mprotect, as_number(begin), static_cast<long>(bytes), protection)));
}

int madvise(void* begin, std::size_t bytes, int advice) noexcept {
  if (fails(Call::madvise, CALLER)) return -1;
  return static_cast<int>(
      answer(ask(SYS_madvise, as_number(begin), static_cast<long>(bytes), advice)));
}

// A failure of a move to a fixed place leaves that place unmapped, and since Linux 6.17 some of the
// range may have moved before; or it comes before anything was done, as when all calls fail.
void* mremap(void* begin, std::size_t bytes, std::size_t new_bytes, int flags, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, flags);
  void* const to = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void*) : nullptr;
  va_end(arguments);
  const auto move = [&](std::size_t so_many) {
    return answer(ask(SYS_mremap, as_number(begin), static_cast<long>(so_many),
                      static_cast<long>(new_bytes - bytes + so_many), flags, as_number(to)));
  };
  if (!fails(Call::mremap, CALLER)) return reinterpret_cast<void*>(move(bytes));
  const std::size_t half = plan.count == 1 ? ts::align_down(bytes / 2, 4096) : 0;
  if (to != nullptr && plan.count != never) {
    if (half != 0) move(half);
    ask(SYS_munmap, as_number(to) + static_cast<long>(half), static_cast<long>(new_bytes - half));
  }
  errno = ENOMEM;
  return MAP_FAILED;
}

void* sbrk(std::intptr_t bytes) noexcept {
  void* const refused = reinterpret_cast<void*>(-1);
  if (bytes == 0) return __sbrk(0);
  if (fails(Call::sbrk, CALLER)) return refused;
  if (armed.load(std::memory_order_relaxed)) record->has_moved_break = true;
  if (armed.load(std::memory_order_relaxed) && plan.world.break_is_stuck && bytes > 0) {
    errno = ENOMEM;
    return refused;
  }
  return __sbrk(bytes);
}

int pthread_key_create(pthread_key_t* key, void (*destructor)(void*)) noexcept {
  return fails(Call::key_create, CALLER) ? EAGAIN : __pthread_key_create(key, destructor);
}

int pthread_setspecific(pthread_key_t key, const void* value) noexcept {
  return fails(Call::set_specific, CALLER) ? ENOMEM : libc_set_specific()(key, value);
}

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long result = answer(ask(SYS_clock_gettime, clock, reinterpret_cast<long>(now)));
  if (clock == CLOCK_MONOTONIC_COARSE && armed.load(std::memory_order_relaxed)) {
    now->tv_sec = static_cast<time_t>(1000 + milliseconds_passed / 1000);
    now->tv_nsec = static_cast<long>(milliseconds_passed % 1000 * 1'000'000);
  }
  return static_cast<int>(result);
}

long syscall(long number, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, number);
  long value[6];
  for (long& each : value) each = va_arg(arguments, long);
  va_end(arguments);
  const bool may_fail = number == SYS_openat || number == SYS_pread64;
  if (may_fail && fails(Call::open_or_read, CALLER)) return -1;
  return answer(ask(number, value[0], value[1], value[2], value[3], value[4], value[5]));
}

}  // extern "C"
