#include "features/arenas/idle_arenas.h"

#include "core/cache_bins.h"
#include "core/reclaim.h"
#include "core/remote_frees.h"
#include "core/slabs.h"
#include "features/arenas/arena_use.h"

namespace ts::engine {
namespace {

// Calls `maintain(arena)` under a hold if no thread uses the arena, or if the calling one does.
template <class Maintain>
void maintain_arena(ThreadHeap& arena, Maintain maintain) noexcept {
  const Guard guard{arenas_lock};
  std::uintptr_t user = arena.user.load(std::memory_order_relaxed);
  // acquire: pairs with unclaim_arena()
  const bool is_claimed = is_idle_mark(user) && arena.user.compare_exchange_strong(
                                                    user, maintained, std::memory_order_acquire,
                                                    std::memory_order_relaxed);
  if (!is_claimed && !is_user(arena)) return;
  {
    const HeapHold hold{arena};
    maintain(arena);
  }
  if (is_claimed) unclaim_arena(arena);
}

}  // namespace

void collect_idle_arenas() noexcept {
  for_each_arena([](ThreadHeap& arena) {
    if (!has_ready(arena)) return;
    maintain_arena(arena, [](ThreadHeap& idle) TS_NO_ANALYSIS {
      collect(idle);
      retire_empty_slabs(idle);
    });
  });
}

void flush_arenas() noexcept {
  for_each_arena([](ThreadHeap& arena) {
    maintain_arena(arena, [](ThreadHeap& idle) TS_NO_ANALYSIS { flush(idle); });
  });
}

}  // namespace ts::engine
