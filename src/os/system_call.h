// System calls by instruction rather than through the C library, whose functions another library
// may interpose (tracers, fake clocks, proxies). An interposed function may allocate, take locks or
// call dlsym, while the caller here holds a heap's lock or has no heap yet. errno is not touched,
// and no call is a cancellation point.
//
// Sanitizer builds go through the C library (and map memory by its public names, see linux.cpp),
// since ThreadSanitizer must see memory come and go.
#pragma once

#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#include <unistd.h>

#include <cerrno>
#define TS_CALLS_THROUGH_LIBC 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer) || \
    __has_feature(memory_sanitizer)
#include <unistd.h>

#include <cerrno>
#define TS_CALLS_THROUGH_LIBC 1
#endif
#endif

namespace ts::os {

// The result; -4095 to -1 is a negated errno value.
inline long system_call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
                        long f = 0) noexcept {
#if defined(TS_CALLS_THROUGH_LIBC)
  const int kept = errno;
  const long result = ::syscall(number, a, b, c, d, e, f);
  const int error = errno;
  errno = kept;
  return result == -1 ? -error : result;
#elif defined(__x86_64__)
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc #0"
                   : "+r"(x0)
                   : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                   : "memory");
  return x0;
#elif defined(__riscv)
  register long a7 __asm__("a7") = number;
  register long a0 __asm__("a0") = a;
  register long a1 __asm__("a1") = b;
  register long a2 __asm__("a2") = c;
  register long a3 __asm__("a3") = d;
  register long a4 __asm__("a4") = e;
  register long a5 __asm__("a5") = f;
  __asm__ volatile("ecall"
                   : "+r"(a0)
                   : "r"(a7), "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5)
                   : "memory");
  return a0;
#else
#error "how does a program make system calls on this processor?"
#endif
}

template <class T>
long call_argument(T value) noexcept {
  if constexpr (std::is_pointer_v<T>) {
    return static_cast<long>(reinterpret_cast<std::uintptr_t>(value));
  } else if constexpr (std::is_same_v<T, std::nullptr_t>) {
    return 0;
  } else {
    return static_cast<long>(value);
  }
}

// The same with arguments of any kind.
template <class... Arguments>
long call(long number, Arguments... arguments) noexcept {
  static_assert(sizeof...(arguments) <= 6);
  return system_call(number, call_argument(arguments)...);
}

constexpr bool is_error(long result) noexcept {
  constexpr unsigned long greatest_error = 4095;
  return static_cast<unsigned long>(result) > ~greatest_error;
}

}  // namespace ts::os
