// Reclaims slabs that other threads have freed entirely while their owner is blocked and cannot
// collect them, and empty slabs that it keeps. The slabs leave the heap and are retired. Nothing
// else of the heap is touched.
//
// The owner changes slabs and their lists under a hold of its heap, and a reclaim needs the hold
// (heap_hold.h). Changes by the owner without a hold do not affect a slab that is reclaimed:
//
// - Blocks in cache bins, on their way to or from them, and in the program's hands count as used
//   and are not pending. Where `pending` equals `used` there are none.
// - The owner's change without the hold (release_overflow) is over when `used` falls by it
//   (release, paired with the acquire in is_reclaimable).
// - After the addition that makes blocks pending, a sender touches the slab only to push it, and
//   the reclaimer finds slabs on the stack only. The others of the stack go back onto it: their
//   `pending` stays positive, so that no other thread pushes them.
// - The owner frees the last used block of a slab under a hold. Without one, it changes no slab of
//   which no block is used.
// - One thread reclaims at a time, under reclaim_lock.
//
// tests/models runs this code against senders and the owner.
#pragma once

#include "engine/types.h"

namespace ts::engine {

// Reclaims from the heap, unless it is held, or another thread reclaims.
void reclaim(ThreadHeap& heap) noexcept;

// Reclaims from all heaps but those that are held, and takes their empty slabs; true if there was
// anything.
bool reclaim_all() noexcept;

}  // namespace ts::engine
