// Options, set by the environment and by set_option(); the environment is read nowhere else. The
// table in options.cpp has the name, kind, range and help line of each TSMALLOC_* variable. An
// unknown name in the environment causes a warning that suggests the nearest known one.
//
// All options have their defaults until the library's first constructor runs, before all others of
// the process. A process with more privileges than its user (AT_SECURE) ignores its environment.
// This code must not allocate, nor use the C library's environment, which is not set up yet;
// options must not be read on a fast path.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "os/size_option.h"

namespace ts {

// What happens when misuse by the program is reported (base/check.h).
enum class OnMisuse : std::uint32_t {
  by_kind,  // invalid pointers are ignored, all else aborts
  abort,
  go_on,
  silent,  // keeps running and reports nothing
};

// Whether a background thread purges the memory that the program leaves idle
// (features/background/background_thread.h).
enum class Background : std::uint32_t {
  automatic,  // once the program has a second thread
  off,
  on,
};

// What the hardened library does at process exit.
enum class AtExit : std::uint32_t {
  check,  // checks for damage
  leaks,  // also reports what is still in use
  off,
};

// Whether memory should use huge pages (features/hugepages/huge_pages.h).
enum class HugePages : std::uint32_t {
  automatic,  // based on evidence
  never,
  always,
};

// When the heap profile is written automatically (features/profile/profiling.h).
enum class ProfileAt : std::uint32_t {
  exit,
  peak,  // at exit, showing the heap at its peak
  limit,
};

// All accesses are relaxed: a value is complete in itself, nothing else is published by it, and a
// thread may use the old one a little longer. (Ending the background thread is the exception, with
// ordering of its own.)
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

// Every default is 0, so that zero-initialisation is correct.
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
      guard_sample;  // one block in this many (features/guard/sampled_guard.h); 0: none
  OptionValue<SizeOption> profile;  // off, on, auto (features/profile/sampling.h)
  OptionValue<ProfileAt> profile_at;
};

inline constinit Options current_options;

// TSMALLOC_STRICT_OVERCOMMIT=1, for tests: pretends that the kernel has that rule (os.h,
// counts_all_memory). relaxed: set before the program runs
inline constinit std::atomic<bool> assumes_strict_overcommit{false};

// Called once, before any constructor, with the environment of the process.
[[gnu::cold]] void read_options(const char* const* environment) noexcept;

// The value of TSMALLOC_PROFILE_OUTPUT or its default: a path in which %p stands for the process
// ID.
const char* profile_output() noexcept;

// Changes an option from now on; the name may include TSMALLOC_ or not. Returns 0, ENOENT for an
// unknown option, EINVAL for an invalid value, or EPERM if the option can only be set at start.
// Does not allocate, lock or print.
[[gnu::cold]] int change_option(const char* name, const char* value) noexcept;
inline bool set_option(const char* name, const char* value) noexcept {
  return change_option(name, value) == 0;
}

// To list all options: the name of option `number`, without TSMALLOC_; null after the last.
[[gnu::cold]] const char* option_name(std::size_t number) noexcept;
// Writes the values that an option accepts; otherwise like write_option.
[[gnu::cold]] int write_option_values(const char* name, char* text, std::size_t size) noexcept;

// Writes the value of an option as the environment would have it, zero-terminated. Returns 0,
// ENOENT, or ERANGE, with nothing written, if it takes more than `size` bytes.
[[gnu::cold]] int write_option(const char* name, char* text, std::size_t size) noexcept;

}  // namespace ts
