#include "engine/arena_use.h"

#include <cerrno>

#include "engine/cache_bins.h"
#include "engine/sample_heap.h"
#include "engine/sampled_guard.h"
#include "engine/slabs.h"

namespace ts::engine {
ThreadHeap* arena_of(ArenaHandle handle) noexcept {
  const ArenaHandle number = arena_number(handle);
  if (number > page_map.heap_count.load(std::memory_order_relaxed)) return nullptr;
  return handle >> generation_shift != 0 ? page_map.heaps + number : nullptr;
}

int claim_arena(ThreadHeap& arena, ArenaHandle handle, const HeapFront* user) noexcept {
  for (;;) {
    std::uintptr_t found = idle_mark_of(handle);
    // acquire: pairs with unclaim_arena()
    if (arena.user.compare_exchange_strong(found, address_of(user), std::memory_order_acquire,
                                           std::memory_order_relaxed))
      return 0;
    if (found == maintained) {
      const Guard guard{arenas_lock};  // until the maintainer is done
      continue;
    }
    // relaxed: the answer is of one moment or another, while the arena is destroyed or claimed
    const bool is_of_handle =
        arena.idle_mark.load(std::memory_order_relaxed) == idle_mark_of(handle);
    return is_of_handle && !is_idle_mark(found) ? EBUSY : EINVAL;
  }
}

void leave_all_scopes() noexcept {
  HeapFront* const own = threads_heap();
  while (ScopeFrame* const frame = this_thread.innermost_scope) {
    ThreadHeap& heap = own_heap();
    this_thread.innermost_scope = frame->outer;
    this_thread.heap = frame->heap_outside;
    if (frame == &heap.scope) {
      frame->repeats = 0;
      unclaim_arena(heap);
      continue;
    }
    if (release_guarded(frame)) continue;
    if (entry_of(frame) >= arena_bit && is_of_sample(entry_of(frame))) {
      release_sample(frame);
      continue;
    }
    auto& owner = *static_cast<ThreadHeap*>(own);
    const HeapHold hold{owner};
    push_to_slab(owner, *slab_of(frame), reinterpret_cast<Block*>(frame));
  }
}

void recover_arena(ThreadHeap& arena, bool is_in_change) noexcept {
  const std::uintptr_t user = arena.user.load(std::memory_order_relaxed);
  if (user == 0 || is_idle_mark(user) || user == address_of(threads_heap())) return;
  if (is_in_change) return arena.user.store(lost, std::memory_order_relaxed);
  arena.from_fork = true;
  arena.scope.repeats = 0;
  recount_bins(arena);
  unclaim_arena(arena);
}

}  // namespace ts::engine
