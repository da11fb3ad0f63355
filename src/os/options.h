// Options that the environment and set_option() set, and the only place that reads it. The table in
// options.cpp has name, kind, range and a line of help of each variable TSMALLOC_*. An unknown name
// in the environment causes a warning, which has the nearest known one.
//
// Everything has its default until the library's first constructor runs, before all others of the
// process. A process with more rights than its user (AT_SECURE) does not read its environment. It
// refuses to allocate, to use the C library's environment, which is not there yet, and to be read
// on a fast path.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "os/size_option.h"

namespace ts {

// The consequence of a misuse by the program that was reported (base/check.h).
enum class OnMisuse : std::uint32_t {
  by_kind,  // a foreign pointer is left alone, all else aborts
  abort,
  go_on,
  silent,  // goes on, and reports nothing
};

// Whether a thread of the library gives memory back that the program leaves idle
// (features/background/background_thread.h).
enum class Background : std::uint32_t {
  automatic,  // once the program has a second thread
  off,
  on,
};

// What the hardened library does when the process ends.
enum class AtExit : std::uint32_t {
  check,  // looks for damage
  leaks,  // the same, and says what is still in use
  off,
};

// Whether memory is to have huge pages (features/hugepages/huge_pages.h).
enum class HugePages : std::uint32_t {
  automatic,  // by evidence
  never,
  always,
};

// When the heap profile is written by itself (features/profile/profiling.h).
enum class ProfileAt : std::uint32_t {
  exit,
  peak,  // at exit, as it was at the peak
  limit,
};

// All accesses are relaxed: a value is complete in itself, nothing else is published by it, and a
// thread may go on with the former one for a while. (A background thread that ends is the
// exception, and has an order of its own.)
struct OptionBits {
  std::atomic<std::uint64_t> bits{0};
};

// A value that may change while threads run.
template <class Value>
struct OptionValue : OptionBits {
  constexpr OptionValue() = default;
  OptionValue(const OptionValue& other) noexcept : OptionValue{} { *this = other.operator Value(); }
  OptionValue& operator=(const OptionValue& other) noexcept {
    return *this = other.operator Value();
  }
  OptionValue& operator=(Value value) noexcept {
    bits.store(static_cast<std::uint64_t>(value), std::memory_order_relaxed);
    return *this;
  }
  operator Value() const noexcept {  // NOLINT(google-explicit-constructor): reads as its value
    return Value(bits.load(std::memory_order_relaxed));
  }
};

// The default of each is 0, so that a zero-initialised process is right.
struct Options {
  OptionValue<OnMisuse> on_misuse;
  OptionValue<Background> background;
  OptionValue<AtExit> at_exit;
  OptionValue<SizeOption> limit;        // auto, off (features/limits/limits.h)
  OptionValue<SizeOption> hard_limit;   // off
  OptionValue<SizeOption> purge_delay;  // auto, never, -1; or milliseconds (core/purge_policy.h)
  OptionValue<HugePages> huge_pages;
  OptionValue<std::uint32_t> show;
  OptionValue<std::uint32_t>
      guard_sample;  // one block in so many (features/guard/sampled_guard.h); 0: none
  OptionValue<SizeOption> profile;  // off, on, auto (features/profile/sampling.h)
  OptionValue<ProfileAt> profile_at;
};

inline constinit Options current_options;

// TSMALLOC_STRICT_OVERCOMMIT=1, for tests: as if the system had that rule (os.h,
// counts_all_memory). relaxed: set before the program runs
inline constinit std::atomic<bool> assumes_strict_overcommit{false};

// Called once, before any constructor, with the environment of the process.
[[gnu::cold]] void read_options(const char* const* environment) noexcept;

// The value of TSMALLOC_PROFILE_OUTPUT, or its default: a path, in which %p stands for the process.
const char* profile_output() noexcept;

// Changes an option from now on, by a name with or without TSMALLOC_. 0, or ENOENT without such an
// option, EINVAL of another value, EPERM where the option is for the start alone. Allocates
// nothing, takes no lock, and writes no message.
[[gnu::cold]] int change_option(const char* name, const char* value) noexcept;
inline bool set_option(const char* name, const char* value) noexcept {
  return change_option(name, value) == 0;
}

// For a list of all: the name of each option, without TSMALLOC_, by its number; null behind the
// last.
[[gnu::cold]] const char* option_name(std::size_t number) noexcept;
// Writes which values an option takes, as write_option writes its value.
[[gnu::cold]] int write_option_values(const char* name, char* text, std::size_t size) noexcept;

// Writes the value of an option, as the environment would have it, and a zero behind it. 0, or
// ENOENT, or ERANGE, with nothing written, if that takes more than `size` bytes.
[[gnu::cold]] int write_option(const char* name, char* text, std::size_t size) noexcept;

}  // namespace ts
