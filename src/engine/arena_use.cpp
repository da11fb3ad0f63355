#include "engine/arena_use.h"

#include <cerrno>

#include "engine/cache_bins.h"
#include "engine/sampled_guard.h"
#include "engine/slabs.h"

namespace ts::engine {
namespace {

bool has_generation(const ThreadHeap& arena, ArenaHandle handle) noexcept {
  // acquire: pairs with the first store, in create_arena(). Later ones the claim orders.
  return arena.generation.load(std::memory_order_acquire) == handle >> generation_shift;
}

}  // namespace

ThreadHeap* arena_of(ArenaHandle handle) noexcept {
  const ArenaHandle number = arena_number(handle);
  if (number > page_map.heap_count.load(std::memory_order_relaxed)) return nullptr;
  return handle >> generation_shift != 0 ? page_map.heaps + number : nullptr;
}

int claim_arena(ThreadHeap& arena, ArenaHandle handle, const HeapFront* user) noexcept {
  for (;;) {
    if (!has_generation(arena, handle)) return EINVAL;
    std::uintptr_t before = 0;
    // acquire: pairs with unclaim_arena()
    if (arena.user.compare_exchange_strong(before, address_of(user), std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
      if (has_generation(arena, handle)) [[likely]]
        return 0;
      unclaim_arena(arena);
      return EINVAL;
    }
    if (before != maintained) return EBUSY;
    const Guard guard{arenas_lock};  // until the maintainer is done
  }
}

void leave_all_scopes() noexcept {
  HeapFront* const own = threads_heap();
  while (ScopeFrame* const frame = innermost_scope) {
    ThreadHeap& heap = own_heap();
    innermost_scope = frame->outer;
    current_heap = frame->heap_outside;
    if (frame == &heap.scope) {
      unclaim_arena(heap);
      continue;
    }
    if (release_guarded(frame)) continue;
    auto& owner = *static_cast<ThreadHeap*>(own);
    const HeapHold hold{owner};
    push_to_slab(owner, *slab_of(frame), reinterpret_cast<Block*>(frame));
  }
}

void recover_arena(ThreadHeap& arena, bool is_in_change) noexcept {
  const std::uintptr_t user = arena.user.load(std::memory_order_relaxed);
  if (user == 0 || user == address_of(threads_heap())) return;
  if (!is_in_change) {
    arena.from_fork = true;
    recount_bins(arena);
  }
  arena.user.store(is_in_change ? lost : 0, std::memory_order_relaxed);
}

}  // namespace ts::engine
