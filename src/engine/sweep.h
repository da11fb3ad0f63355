// What other threads freed of a heap whose own thread does not come by, because it waits for
// something: it would keep that memory for as long. So slabs of which every block that counts as
// used has been sent home by others are swept: taken from the heap by whoever finds so many of
// them, and put into the page heap. Nothing else of the heap is touched.
//
// A heap is held by its own thread while that changes slabs or their lists, and by a thread that
// sweeps it. What the owner does without a hold does not lead to a slab that is swept:
//
// - Blocks in the thread's bins, on their way to or from them, and in its program's hands count as
//   used and are not pending. Where `pending` is `used` there are none.
// - What the owner changes without the hold (release_overflow) is over when `used` falls by it
//   (release, paired with the sweeper's acquire).
// - A thread that sends blocks touches nothing of the slab after the addition that made them
//   pending, but for pushing it, and the sweeper finds slabs on the stack only. The others of the
//   stack go back onto it: their `pending` stays positive, so that nobody else pushes them.
// - One thread sweeps at a time, under a lock. It takes a hold if it can, and never waits for one;
//   the owner waits for the lock, and so for no longer than one walk through a stack. (A thread that
//   is ended in the middle of that, by pthread_cancel or longjmp where that is not allowed, leaves
//   the lock behind, as it would that of the page heap.)
//
// tests/models/remote_free_test.cpp has the sweeper as one more thread.
#pragma once

#include "engine/layout.h"

namespace ts::engine {

// False if somebody holds the heap.
inline bool try_hold(std::atomic<Holder>& holder, Holder who) noexcept {
  Holder none = Holder::none;
  // acquire: pairs with the release at the end of the other's hold
  return holder.compare_exchange_strong(none, who, std::memory_order_acquire,
                                        std::memory_order_relaxed);
}

// The owner's hold of its heap, for as long as this object lives; to a fork it is a mark of being
// busy (base/busy_mark.h). Holds of one thread nest; one that was left for good, by longjmp out of
// a signal handler, stays, and nobody sweeps that heap.
class HeapHold {
 public:
  explicit HeapHold(ThreadHeap& heap) noexcept : holder_{heap.holder}, nests_{!begin(heap.holder)} {
    std::atomic_thread_fence(std::memory_order_release);  // keeps later stores behind the mark
  }
  ~HeapHold() {
    // release: pairs with the sweeper's acquire
    if (!nests_) holder_.store(Holder::none, std::memory_order_release);
  }
  HeapHold(const HeapHold&) = delete;
  HeapHold& operator=(const HeapHold&) = delete;

 private:
  // False if this thread has it already.
  static bool begin(std::atomic<Holder>& holder) noexcept {
    return try_hold(holder, Holder::owner) || begin_after_sweep(holder);
  }
  [[gnu::noinline]] static bool begin_after_sweep(std::atomic<Holder>& holder) noexcept;

  std::atomic<Holder>& holder_;
  bool nests_;
};

// Counts one more slab of the heap, so many granules long, that can probably be swept; true if there
// are so many now that it is worth it.
bool count_sweepable(ThreadHeap& heap, std::uint32_t granules) noexcept;

// Sweeps the heap, unless it is held, or another is being swept.
void sweep(ThreadHeap& heap) noexcept;

// Sweeps all heaps but those that are held; true if there was anything.
bool sweep_all() noexcept;

void sweep_fork_prepare() noexcept;
void sweep_fork_parent() noexcept;
void sweep_fork_child() noexcept;

}  // namespace ts::engine
