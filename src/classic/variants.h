// The matrix: six strategies x three fits. Each cell is proven a heap here, built as a drop-in
// library (override/), offered by the public interface (heap_api.cpp), and run through the same
// tests.
#pragma once

#include "classic/arenas.h"
#include "classic/cached.h"
#include "classic/lock.h"
#include "classic/lock_free.h"
#include "classic/per_thread.h"
#include "classic/read_write.h"

namespace ts::classic {

template <template <FitPolicy> class Strategy>
inline constexpr bool every_fit_is_a_heap =
    HeapLike<Strategy<FirstFit>> && HeapLike<Strategy<BestFit>> && HeapLike<Strategy<WorstFit>>;

static_assert(every_fit_is_a_heap<Lock>);
static_assert(every_fit_is_a_heap<ReadWrite>);
static_assert(every_fit_is_a_heap<PerThread>);
static_assert(every_fit_is_a_heap<Arenas>);
static_assert(every_fit_is_a_heap<Cached>);
static_assert(every_fit_is_a_heap<LockFree>);

}  // namespace ts::classic
