// The end of a replay that takes too long: an allocator that hangs is a result.
//
// Why it exists: a deadlock in an allocator would hold up a whole comparison. What it refuses to
// do: wait for a thread. The process says that its time is up, and ends where it is.
#pragma once

#include "common/system.h"

namespace ts::replay {

inline constexpr int exit_timed_out = 124;

// After so long, the line `{"schema": ..., "timed_out": true}` and the exit. 0: never.
void arm_timeout(Nanoseconds timeout_ns);

// In a forked child, which has no timer: for what is left since begin_ns. It writes no line.
void rearm_timeout(Nanoseconds timeout_ns, Nanoseconds begin_ns);

}  // namespace ts::replay
