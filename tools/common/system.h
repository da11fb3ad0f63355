// Clocks, text files of /proc, and fatal errors. A launcher must stay a few hundred KB small,
// because the kernel counts its memory in its child's peak: so there is no C++ library, nothing
// here allocates, and texts are cut to fixed buffers.
#pragma once

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>

namespace ts {

using Nanoseconds = std::int64_t;
inline constexpr Nanoseconds ns_per_second = 1'000'000'000;
inline constexpr Nanoseconds ns_per_ms = 1'000'000;
inline constexpr Nanoseconds ns_per_us = 1'000;

inline constexpr int exit_usage = 1;
inline constexpr int exit_internal = 125;

// Each tool defines its own, the prefix of its messages.
const char* tool_name();

inline Nanoseconds read_clock(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec * ns_per_second + time.tv_nsec;
}
inline Nanoseconds now_ns() { return read_clock(CLOCK_MONOTONIC); }
inline std::uint64_t unsigned_now_ns() { return static_cast<std::uint64_t>(now_ns()); }
inline Nanoseconds cpu_time_ns() {
  return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}  // of this process

// Whether the processor's counter runs at one constant speed, the same on all cores.
inline bool has_invariant_counter() {
#ifdef __x86_64__
  constexpr unsigned power_leaf = 0x8000'0007;
  constexpr unsigned invariant_bit = 1U << 8;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(power_leaf, &a, &b, &c, &d) != 0 && (d & invariant_bit) != 0;
#else
  return false;
#endif
}

// "TOOL: CONTEXT: the error's text" on stderr, then the exit status of an internal failure.
[[noreturn]] void fail_internal(const char* context, int error_number);

// Writes all of it; returns 0, or the error number.
inline int write_all(int descriptor, const void* bytes, std::size_t count) {
  for (const auto* from = static_cast<const char*>(bytes); count > 0;) {
    const ssize_t written = write(descriptor, from, count);
    if (written < 0 && errno != EINTR) return errno;
    if (written < 0) continue;
    from += written;
    count -= static_cast<std::size_t>(written);
  }
  return 0;
}

// Prints into a fixed buffer; a text that does not fit is cut.
[[gnu::format(printf, 3, 4)]] void format(char* buffer, std::size_t size, const char* pattern, ...);

// Reads a text piece by piece, whatever its length. Invariant: buffer_[begin_, end_) has been read
// but not yet returned.
class PieceReader {
 public:
  explicit PieceReader(const char* path);
  ~PieceReader();
  PieceReader(const PieceReader&) = delete;
  PieceReader& operator=(const PieceReader&) = delete;

  bool is_open() const { return descriptor_ >= 0; }

  // The next piece, without its delimiter and ended by a NUL; null at the end. It is valid until
  // the next call. A piece longer than the buffer arrives in parts.
  char* next(char delimiter);

 private:
  bool fill();

  static constexpr std::size_t capacity =
      8192;  // a line of /proc/PID/maps: about 100 bytes and a path of at most 4096
  int descriptor_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  char buffer_[capacity + 1];
};

// The plural ending of a counted noun.
inline const char* plural(std::uint64_t count) { return count == 1 ? "" : "s"; }

inline const char* base_name(const char* path) {
  const char* const slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

// The number after `key` ("VmRSS:") in a line, if the line begins with that key; -1 otherwise.
std::int64_t number_after(const char* line, const char* key);

// The bytes in the line "KEY: N kB" of a /proc text; -1 if there is no such line.
std::int64_t bytes_after(const char* path, const char* key);

}  // namespace ts
