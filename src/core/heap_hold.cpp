#include "core/heap_hold.h"

namespace ts::engine {

bool HeapHold::begin_after_reclaim(ThreadHeap& heap) noexcept TS_NO_ANALYSIS {
  if (heap.holder.load(std::memory_order_relaxed) == Holder::owner) return false;
  do {
    const Guard guard{reclaim_lock};  // a reclaimer keeps it until its hold ends
  } while (!try_hold(heap, Holder::owner));
  return true;
}

}  // namespace ts::engine
