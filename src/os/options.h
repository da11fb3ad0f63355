// Options that the environment sets, and the only place that reads it. The table in options.cpp has
// name, kind, range and a line of help of each variable TSMALLOC_*. An unknown name causes a
// warning, which has the nearest known one.
//
// Everything has its default until the library's first constructor runs, before all others of the
// process; then the values are const. A process with more rights than its user (AT_SECURE) keeps
// the defaults. It refuses to allocate, to use the C library's environment, which is not there yet,
// and to be read on a fast path.
#pragma once

#include <cstdint>

namespace ts {

// The consequence of a misuse by the program that was reported (base/check.h).
enum class OnMisuse : std::uint32_t {
  by_kind,  // a foreign pointer is left alone, all else aborts
  abort,
  go_on,
  silent,  // goes on, and reports nothing
};

// Whether a thread of the library gives memory back that the program leaves idle
// (engine/housekeeping.h).
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

// The default of each is 0, so that a zero-initialised process is right.
struct Options {
  OnMisuse on_misuse = OnMisuse::by_kind;
  Background background = Background::automatic;
  AtExit at_exit = AtExit::check;
  std::uint32_t show = 0;
  std::uint32_t guard_sample = 0;  // one block in so many (engine/sampled_guard.h); 0: none
};

inline constinit Options current_options;

// Called once, before any constructor, with the environment of the process.
[[gnu::cold]] void read_options(const char* const* environment) noexcept;

}  // namespace ts
