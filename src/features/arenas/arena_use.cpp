#include "features/arenas/arena_use.h"

#include <cerrno>

#include "core/cache_bins.h"
#include "core/hooks.h"
#include "core/slabs.h"

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
      const Guard guard{arenas_lock};  // waits until the maintainer is done
      continue;
    }
    // relaxed: if the arena is being destroyed or claimed, either answer was right at some moment
    const bool is_of_handle =
        arena.idle_mark.load(std::memory_order_relaxed) == idle_mark_of(handle);
    return is_of_handle && !is_idle_mark(found) ? EBUSY : EINVAL;
  }
}

// The thread leaves all scopes.
void hooks::thread_is_ending() noexcept {
  HeapFront* const own = threads_heap();
  while (ScopeFrame* const frame = this_thread.innermost_scope) {
    ThreadHeap& heap = current_heap();
    this_thread.innermost_scope = frame->outer;
    this_thread.heap = frame->heap_outside;
    if (frame == &heap.scope) {
      frame->repeats = 0;
      unclaim_arena(heap);
      continue;
    }
    if (hooks::release_foreign(frame)) continue;
    const PageMapEntry entry = entry_of(frame);
    if (entry >= arena_bit && hooks::release_sampled(frame, entry)) continue;
    auto& owner = *static_cast<ThreadHeap*>(own);
    const HeapHold hold{owner};
    push_to_slab(owner, frame, place_of(frame, size_class_of(entry)));
  }
}

// The child has only the calling thread: an arena that another thread used is idle again, unless
// that thread was in the middle of a change.
void hooks::arena_in_child(ThreadHeap& arena, bool is_in_change) noexcept {
  const std::uintptr_t user = arena.user.load(std::memory_order_relaxed);
  if (user == 0 || is_idle_mark(user) || user == address_of(threads_heap())) return;
  if (is_in_change) return arena.user.store(lost, std::memory_order_relaxed);
  arena.from_fork = true;
  arena.scope.repeats = 0;
  recount_bins(arena);
  unclaim_arena(arena);
}

}  // namespace ts::engine
