// The rounds in which the owner of a heap scavenges its sparse slabs: those that stayed sparse for
// a whole round lose their free OS pages (slab_purge.h).
//
// Slow paths notice that it is time, and scavenge at their end (deferred_work.h). A program that
// does little has no slow paths: its few blocks come from the cache bins and return there. So each
// round bypasses the bins. A bypassed bin is empty, with capacity 0; each malloc of its class is a
// refill, of one block, and each free goes to the slab. After some such refills the program is busy
// enough to have slow paths anyway, and refills reopen the bins.
#pragma once

#include "core/heap_hold.h"
#include "core/sparse_slabs.h"

namespace ts::engine {

// All of these are called by the heap's owner, or a thread that took it over, without a lock or a
// hold.

// Begins a round if it is time, and purges sparse slabs of earlier rounds, a few at a time.
void scavenge(ThreadHeap& heap) noexcept;

// Likewise, when the thread is about to wait. Returns in how many milliseconds to scavenge the heap
// again; -1 if that is not necessary.
int scavenge_before_wait(ThreadHeap& heap) noexcept;

}  // namespace ts::engine
