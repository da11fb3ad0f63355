// How the front door ends when it cannot do what was asked.
#pragma once

#include "common/system.h"

namespace ts {

inline constexpr int exit_missing = 2;

// Prints "tsmalloc: ", the text and a newline to stderr, and ends the process.
[[noreturn, gnu::format(printf, 2, 3)]] void fail(int status, const char* pattern, ...);

}  // namespace ts
