// Holds of a heap: which thread may change its slabs and their lists. The owner holds its heap in
// slow paths; a reclaimer (reclaim.h) holds the heap of an owner that is not in one. To clang's
// analysis a heap is a capability: only a holder may call a function with TS_REQUIRES(heap).
//
// A reclaimer takes a hold only if it is free, and never waits for one. The owner waits for
// reclaim_lock: for one walk through a stack, or while memory of heaps without a thread is returned
// (heap_lifecycle.cpp). A thread that took over an abandoned heap is its owner meanwhile. (A thread
// that is ended within that walk, by pthread_cancel or longjmp where neither is allowed, leaves the
// lock taken.)
#pragma once

#include "core/types.h"
#include "os/mutex.h"

namespace ts::engine {

// Only one thread at a time reclaims.
inline constinit Mutex reclaim_lock;

// Takes a reclaimer's hold; false if the heap is held.
inline bool try_hold(ThreadHeap& heap, Holder holder) noexcept
    TS_TRY_ACQUIRE(true, heap) TS_NO_ANALYSIS {
  Holder none = Holder::none;
  // acquire: pairs with the release in end_hold()
  return heap.holder.compare_exchange_strong(none, holder, std::memory_order_acquire,
                                             std::memory_order_relaxed);
}

inline void end_hold(ThreadHeap& heap) noexcept TS_RELEASE(heap) TS_NO_ANALYSIS {
  // release: pairs with the acquire in try_hold()
  heap.holder.store(Holder::none, std::memory_order_release);
}

// The owner's hold of its heap, for the lifetime of this object; for a fork it is a busy mark
// (base/busy_mark.h). Holds of one thread nest. A hold left behind by a longjmp stays, and nothing
// reclaims the heap.
class TS_SCOPED_CAPABILITY HeapHold {
 public:
  explicit HeapHold(ThreadHeap& heap) noexcept TS_ACQUIRE(heap) TS_NO_ANALYSIS
      : heap_{heap},
        nests_{!begin(heap)} {
    fence(std::memory_order_release);  // keeps later stores after the mark
  }
  ~HeapHold() TS_RELEASE() TS_NO_ANALYSIS {
    if (!nests_) end_hold(heap_);
  }
  HeapHold(const HeapHold&) = delete;
  HeapHold& operator=(const HeapHold&) = delete;

 private:
  // False if this thread already has it.
  static bool begin(ThreadHeap& heap) noexcept TS_NO_ANALYSIS {
    return try_hold(heap, Holder::owner) || begin_after_reclaim(heap);
  }
  [[gnu::noinline]] static bool begin_after_reclaim(ThreadHeap& heap) noexcept TS_NO_ANALYSIS {
    if (heap.holder.load(std::memory_order_relaxed) == Holder::owner) return false;
    do {
      const Guard guard{reclaim_lock};  // a reclaimer keeps it until its hold ends
    } while (!try_hold(heap, Holder::owner));
    return true;
  }

  ThreadHeap& heap_;
  bool nests_;
};

}  // namespace ts::engine
