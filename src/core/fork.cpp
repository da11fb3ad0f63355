#include "core/fork.h"

#include "core/common_heap.h"
#include "core/current_heap.h"
#include "core/heap_hold.h"
#include "core/heap_lifecycle.h"
#include "core/hooks.h"
#include "core/page_heap.h"
#include "core/page_map.h"
#include "os/os.h"
#include "os/touched_pages.h"

namespace ts::engine {
namespace {

// Whether the forking thread is the only one. Then a signal handler may have forked in the middle
// of a change, which that thread completes in both parent and child.
constinit bool forks_with_one_thread = false;

bool is_in_change(const ThreadHeap& heap) noexcept {
  return heap.busy.load(std::memory_order_relaxed) ||
         heap.holder.load(std::memory_order_relaxed) != Holder::none;
}

// Whether the child must not abandon the heap: a thread uses it, or was changing it.
bool is_in_use(const ThreadHeap& heap) noexcept TS_NO_ANALYSIS {
  const bool has_user = &heap == threads_heap() || is_common(heap) || is_abandoned(heap);
  return has_user || is_in_change(heap);
}

}  // namespace

void fork_prepare() noexcept TS_NO_ANALYSIS {
  for (Mutex* const lock : hooks::mutexes_in_order()) lock->lock_for_fork();
  forks_with_one_thread = os::has_one_thread();
}

void fork_parent() noexcept TS_NO_ANALYSIS {
  const std::span<Mutex* const> mutexes = hooks::mutexes_in_order();
  for (std::size_t i = mutexes.size(); i-- != 0;) mutexes[i]->unlock_after_fork();
}

void fork_child() noexcept TS_NO_ANALYSIS {
  for (Mutex* const lock : hooks::mutexes_in_order()) lock->reset_after_fork();
  hooks::child_begins();
  if (forks_with_one_thread) return;
  for_each_heap([](ThreadHeap& heap) TS_NO_ANALYSIS {
    if (is_arena(heap)) return hooks::arena_in_child(heap, is_in_change(heap));
    if (is_in_use(heap)) return;
    // Writes as little as possible: each page that the child writes is copied, and most children
    // call exec.
    heap.from_fork = heap.recounts = true;
    abandon(heap, true, pages_of_slabs(heap));
  });
}

}  // namespace ts::engine
