#include "engine/fork.h"

#include "engine/abandoned.h"
#include "engine/arena_use.h"
#include "engine/common_heap.h"
#include "engine/current_heap.h"
#include "engine/heap_hold.h"
#include "engine/housekeeping.h"
#include "engine/limits.h"
#include "engine/page_heap.h"
#include "engine/page_map.h"
#include "engine/sampled_guard.h"
#include "engine/samples.h"
#include "engine/touched_pages.h"
#include "os/os.h"

namespace ts::engine {
namespace {

// Every mutex of the engine, in the order in which a thread takes them.
constinit Mutex* const locks_in_order[] = {
    &housekeeping_lock,   // a slice of the housekeeper's work
    &arenas_lock,         // a maintainer of an arena
    &common_lock,         // refill of the common heap
    &samples_lock,        // refill of the sample heap
    &collection_lock,     // an abandoned heap that is out of its queue
    &abandoned_lock,      // the queue
    &reclaim_lock,        // a hold of a heap may wait for it
    &page_heap.lock(),    // spans
    &sampled_guard_lock,  // slots of sampled blocks
    &page_table_lock,     // a file that is open for a look
};

// Whether the thread that forks is the process's only one. Then a signal handler may fork in the
// middle of a change by that thread, which ends the change in parent and child.
constinit bool forks_with_one_thread = false;

bool is_in_change(const ThreadHeap& heap) noexcept {
  return heap.busy.load(std::memory_order_relaxed) ||
         heap.holder.load(std::memory_order_relaxed) != Holder::none;
}

// Whether the child must not abandon the heap: it has a user, was in a change, or was never begun.
bool is_in_use(const ThreadHeap& heap) noexcept TS_NO_ANALYSIS {
  const bool has_user = &heap == threads_heap() || is_common(heap) || is_abandoned(heap);
  return has_user || is_in_change(heap) || entry_of_heap(heap) == 0;
}

}  // namespace

void fork_prepare() noexcept TS_NO_ANALYSIS {
  for (Mutex* const lock : locks_in_order) lock->lock_for_fork();
  forks_with_one_thread = os::has_one_thread();
}

void fork_parent() noexcept TS_NO_ANALYSIS {
  for (std::size_t i = std::size(locks_in_order); i-- != 0;) locks_in_order[i]->unlock_after_fork();
}

void fork_child() noexcept TS_NO_ANALYSIS {
  for (Mutex* const lock : locks_in_order) lock->reset_after_fork();
  forget_samples_in_progress();
  forget_housekeeper();
  forget_looks();
  if (forks_with_one_thread) return;
  for_each_heap([](ThreadHeap& heap) TS_NO_ANALYSIS {
    if (is_arena(heap)) return recover_arena(heap, is_in_change(heap));
    if (is_in_use(heap)) return;
    // Little is written to, since each page that the child writes is copied, and most children call
    // exec.
    heap.from_fork = heap.recounts = true;
    abandon(heap, true, pages_of_slabs(heap));
  });
}

}  // namespace ts::engine
