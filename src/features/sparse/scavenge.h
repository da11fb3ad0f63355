// The rounds in which the owner of a heap scavenges its sparse slabs: those that stayed sparse
// through a whole round lose their free OS pages (slab_purge.h).
//
// Slow paths note that it is time, and do it at their end (deferred_work.h). A program that does
// little has none: its few blocks come from the cache bins and go back there. So each round
// bypasses the bins. A bypassed bin is empty with capacity 0; each malloc of its class is a refill,
// by one block, and each free passes it by. After some such refills the program is busy enough to
// come by anyway, and refills open the bins.
#pragma once

#include "core/heap_hold.h"
#include "core/sparse_slabs.h"

namespace ts::engine {

// All of these are called by the heap's owner, or a thread that took it over, without a lock or a
// hold.

// Begins a round if it is time, and purges sparse slabs of former rounds, some at a time.
void scavenge(ThreadHeap& heap) noexcept;

// The same where the thread is about to wait. Returns in how many milliseconds the heap is to be
// scavenged again; -1 if it need not be.
int scavenge_before_wait(ThreadHeap& heap) noexcept;

}  // namespace ts::engine
