// The matrix: six strategies x three fits. Each cell is checked here to be a heap, built as a
// drop-in library (libc/), offered by the public interface (heap_api.cpp), and run through the same
// tests.
#pragma once

#include "classic/arenas.h"
#include "classic/cached.h"
#include "classic/lock.h"
#include "classic/lock_free.h"
#include "classic/per_thread.h"
#include "classic/read_write.h"

namespace ts::classic {

template <class... Heaps>
inline constexpr bool all_are_heaps = (HeapLike<Heaps> && ...);

static_assert(all_are_heaps<Lock<FirstFit>, Lock<BestFit>, Lock<WorstFit>>);
static_assert(all_are_heaps<ReadWrite<FirstFit>, ReadWrite<BestFit>, ReadWrite<WorstFit>>);
static_assert(all_are_heaps<PerThread<FirstFit>, PerThread<BestFit>, PerThread<WorstFit>>);
static_assert(all_are_heaps<Arenas<FirstFit>, Arenas<BestFit>, Arenas<WorstFit>>);
static_assert(all_are_heaps<Cached<FirstFit>, Cached<BestFit>, Cached<WorstFit>>);
static_assert(all_are_heaps<LockFree<FirstFit>, LockFree<BestFit>, LockFree<WorstFit>>);

}  // namespace ts::classic
