// What happens to an image between its beginning and its end, beside allocations: forks, threads
// that come and go, and what the program forbids itself.
//
// Why it exists: a replay needs to know who created whom, and the collector how an image ended.
// What it refuses to do: miss anything for good. A child that was forked, or a thread that was
// started, behind our back (clone, timers, thrd_create within libc) is noticed at its first event.
#pragma once

namespace ts::record {

// Once, when the image has begun, on its first thread.
void watch_lifecycle();
// The same in a forked child, which has inherited most of it.
void watch_lifecycle_in_child();

// threads.cpp
void watch_threads();
void watch_threads_in_child();
// The calling thread's end shall be noticed.
void watch_own_end();

}  // namespace ts::record
