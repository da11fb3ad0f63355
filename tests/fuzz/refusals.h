// Makes system calls fail when an input says so. Include it in one file of a program. A heap's
// calls by instruction are caught (caught_calls.h); calls by name, the only ones in sanitizer
// builds, arrive here first because the program is linked with --wrap. The clock that heaps read
// also advances when an input says so.
//
// mremap never fails here: a heap would not move a block again (FullMemory covers that). Only one
// thread is in the heap at a time (seats.h).
#pragma once

#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "os/system_call.h"
#include "programs/support/caught_calls.h"

namespace ts::fuzz {

struct Refusals {
  unsigned granted = 0;  // this many calls pass,
  unsigned left = 0;     // then this many are refused
  unsigned made = 0;

  bool refuse() {
    if (left == 0) return false;
    if (granted != 0) {
      --granted;
      return false;
    }
    --left;
    ++made;
    return true;
  }
};

inline Refusals refusals;

// In milliseconds since some past time.
inline std::uint64_t clock_now = 1'000'000;

// As the kernel answers.
inline long serve(const CaughtCall* call) {
  switch (call->number) {
    case SYS_mmap:
    case SYS_munmap:
    case SYS_mprotect:
      return refusals.refuse() ? -ENOMEM : ask_system(call);
    case SYS_madvise:
      return refusals.refuse() ? -EAGAIN : ask_system(call);
    case SYS_brk: {
      const CaughtCall end{SYS_brk, {}, 0};
      return call->argument[0] != 0 && refusals.refuse() ? ask_system(&end) : ask_system(call);
    }
    case SYS_clock_gettime: {
      if (call->argument[0] != CLOCK_MONOTONIC_COARSE) return ask_system(call);
      auto* const now = reinterpret_cast<timespec*>(call->argument[1]);
      now->tv_sec = static_cast<time_t>(clock_now / 1000);
      now->tv_nsec = static_cast<long>(clock_now % 1000 * 1'000'000);
      return 0;
    }
    default:
      return ask_system(call);
  }
}

// From now on; before the first call of a heap.
inline void catch_system_calls() {
#if !defined(TS_CALLS_THROUGH_LIBC)
  static constexpr int numbers[] = {SYS_mmap,    SYS_munmap, SYS_mprotect,
                                    SYS_madvise, SYS_brk,    SYS_clock_gettime};
  const void* const own_code = reinterpret_cast<void*>(&serve);
  if (const int error = catch_calls(own_code, numbers, sizeof numbers / sizeof *numbers, serve))
    std::fprintf(stderr, "calls by instruction cannot be refused here: %s\n", std::strerror(error));
#endif
}

}  // namespace ts::fuzz

extern "C" {
void* __real_mmap(void* begin, std::size_t bytes, int protection, int flags, int file, off_t at);
int __real_munmap(void* begin, std::size_t bytes);
int __real_madvise(void* begin, std::size_t bytes, int advice);
unsigned long __real_getauxval(unsigned long kind);
int __real_pthread_setspecific(pthread_key_t key, const void* value);

inline bool is_refused(int error) {
  if (!ts::fuzz::refusals.refuse()) return false;
  errno = error;
  return true;
}

void* __wrap_mmap(void* begin, std::size_t bytes, int protection, int flags, int file, off_t at) {
  if (is_refused(ENOMEM)) return MAP_FAILED;
  return __real_mmap(begin, bytes, protection, flags, file, at);
}
int __wrap_munmap(void* begin, std::size_t bytes) {
  return is_refused(ENOMEM) ? -1 : __real_munmap(begin, bytes);
}
int __wrap_madvise(void* begin, std::size_t bytes, int advice) {
  return is_refused(EAGAIN) ? -1 : __real_madvise(begin, bytes, advice);
}
long __wrap_syscall(long number, ...) {
  std::va_list arguments;
  va_start(arguments, number);
  CaughtCall call{number, {}, 0};
  for (long& each : call.argument) each = va_arg(arguments, long);
  va_end(arguments);
  const long result = ts::fuzz::serve(&call);
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}
// The process must not see the kernel's vDSO clock, so each reading is a call.
unsigned long __wrap_getauxval(unsigned long kind) {
  return kind == AT_SYSINFO_EHDR ? 0 : __real_getauxval(kind);
}
int __wrap_pthread_setspecific(pthread_key_t key, const void* value) {
  // Its error is its result.
  return ts::fuzz::refusals.refuse() ? ENOMEM : __real_pthread_setspecific(key, value);
}
}
