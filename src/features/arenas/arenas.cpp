#include "features/arenas/arenas.h"

#include <algorithm>
#include <cerrno>

#include "core/cache_bins.h"
#include "core/colours.h"
#include "core/deferred_work.h"
#include "core/heap_hold.h"
#include "core/heap_invariants.h"
#include "core/heap_lifecycle.h"
#include "core/hooks.h"
#include "core/page_heap.h"
#include "core/reclaim.h"
#include "core/remote_frees.h"
#include "core/slabs.h"
#include "core/sparse_slabs.h"
#include "features/arenas/arena_blocks.h"

namespace ts::engine {
namespace {

constinit ThreadHeap* first_free TS_GUARDED_BY(arenas_lock) = nullptr;

ArenaHandle handle_of(const ThreadHeap& arena) noexcept {
  const std::uintptr_t idle = arena.idle_mark.load(std::memory_order_relaxed);
  return idle >> 2 << generation_shift | number_of(arena);
}

// ---- large blocks ----

void release_large_blocks(ThreadHeap& arena) noexcept {
  while (Span* const span = pop_large_block(arena)) {
    PageMapEntry entry = large_entry;
    // relaxed: as in release_large(). A free that races with the arena's end, which is misuse, may
    // have been first; then it releases the span.
    if (!page_map.pages[first_page_of(span)].entry.compare_exchange_strong(
            entry, 0, std::memory_order_relaxed))
      continue;
    hooks::before_large_release(*span);
    page_heap.release(span);
  }
}

// ---- slabs ----

void forget_remote_frees(ThreadHeap& arena) noexcept TS_REQUIRES(arena) {
  for (Span* slab = take_ready(arena); slab != nullptr;) {
    RemoteFrees& frees = remote_frees_of(slab);
    Span* const next = frees.next_ready;
    // relaxed: the program has ordered its frees before the arena's end
    for (std::uint32_t first = 0; first < slab->slab_blocks; first += 64)
      remote_word_of(slab, first / 64).store(0, std::memory_order_relaxed);
    frees.pending.store(0, std::memory_order_relaxed);
    slab = next;
  }
}

// Does not check blocks in use.
void release_slabs(ThreadHeap& arena) noexcept TS_REQUIRES(arena) {
  std::uint32_t link = arena.first_sparse;
  while (link != 0) {
    Span& slab = queued_slab(link);
    link = link_after(slab);
    if (link != 0) prefetch_to_write(&queued_slab(link));
    slab.next_sparse = 0;
    use_of(slab).fast_free_threshold = unlisted;
    retire_slab(slab);
  }
}

// Clears the keys, as retire_slab() does for blocks in slabs.
void clear_marks_of_bin(ThreadHeap& arena, unsigned size_class) noexcept TS_REQUIRES(arena) {
  const PageMapEntry entry = entry_of_heap(arena) | PageMapEntry{size_class} << class_shift;
  const auto is_own = [=](const Block* block) { return (entry_of(block) & ~keyless_bit) == entry; };
  std::uint32_t left = max_in_bin;
  for (Block* block = arena.bins[size_class].head; left != 0 && is_own(block); --left)
    block = clear_key(block)->next;
}

// Makes the arena as empty as a new one.
void empty(ThreadHeap& arena) noexcept TS_REQUIRES(arena) {
  for (unsigned c = 1; c < class_count; ++c) {
    clear_marks_of_bin(arena, c);
    drop_bin(arena, c);
    set_capacity(arena, c, 0);
    arena.sparse_slabs[c] = 0;
    arena.partial[c] = nullptr;
    arena.slabs[c] = 0;
  }
  forget_remote_frees(arena);
  release_large_blocks(arena);
  release_slabs(arena);
  arena.first_sparse = arena.last_sparse = arena.sparse_pages = 0;
  arena.refills_since_look = 0;
  arena.reclaimable_pages.store(0, std::memory_order_relaxed);
  arena.from_fork = false;
  if constexpr (debug_level >= 1) check_at_rest(arena);
}

// Calls `use(arena)` while the calling thread is its user; from within its scope only if it
// `may_be`.
template <class Use>
int use_arena(ArenaHandle handle, bool may_be_in_scope, Use use) noexcept {
  ThreadHeap* const arena = arena_of(handle);
  if (arena == nullptr) return EINVAL;
  const int error = claim_arena(*arena, handle, threads_heap());
  const bool is_in_scope = error == EBUSY && is_user(*arena);
  if (error != 0 && !(is_in_scope && may_be_in_scope)) return error;
  {
    const HeapHold hold{*arena};
    use(*arena);
  }
  if (!is_in_scope) unclaim_arena(*arena);
  send_purges_if_any();
  return 0;
}

// A program that leaks arenas leaves numbers of heaps for its threads, and for the heap profile.
constexpr std::uint32_t most_heaps_with_arenas = AddressRange::max_heaps / 8 * 7;

}  // namespace

ArenaHandle create_arena() noexcept {
  {
    const Guard guard{arenas_lock};
    if (ThreadHeap* const arena = first_free; arena != nullptr) {
      first_free = arena->next_abandoned;
      return handle_of(*arena);
    }
  }
  if (page_map.heap_count.load(std::memory_order_relaxed) >= most_heaps_with_arenas) return 0;
  ThreadHeap* const arena = new_heap(arena_bit);
  if (arena == nullptr) return 0;
  constexpr ArenaHandle first_generation = ArenaHandle{1} << generation_shift;
  arena->idle_mark.store(idle_mark_of(first_generation), std::memory_order_relaxed);
  unclaim_arena(*arena);  // publishes the heap as new_heap() made it
  return handle_of(*arena);
}

int reset_arena(ArenaHandle handle) noexcept { return use_arena(handle, false, empty); }

int destroy_arena(ArenaHandle handle) noexcept {
  const int error = use_arena(handle, false, [](ThreadHeap& arena) TS_NO_ANALYSIS {
    empty(arena);
    // relaxed: the release of `user` follows
    constexpr std::uintptr_t generation = 4;  // in a mark
    arena.idle_mark.store(arena.idle_mark.load(std::memory_order_relaxed) + generation,
                          std::memory_order_relaxed);
  });
  if (error != 0) return error;
  ThreadHeap* const arena = arena_of(handle);
  const Guard guard{arenas_lock};
  arena->next_abandoned = first_free;
  first_free = arena;
  return 0;
}

int measure_arena(ArenaHandle handle, ArenaUsage& usage) noexcept {
  return use_arena(handle, true, [&](ThreadHeap& arena) TS_NO_ANALYSIS {
    collect(arena);
    std::size_t used_bytes = 0;
    for (std::uint32_t link = arena.first_sparse; link != 0;) {
      const Span& slab = queued_slab(link);
      used_bytes += used(slab) * std::size_t{size_classes[slab.size_class].block_bytes};
      link = link_after(slab);
    }
    for (unsigned c = 1; c < class_count; ++c) {
      const auto binned = static_cast<std::size_t>(std::max(counted_blocks(arena, c), 0));
      used_bytes -= std::min(used_bytes, binned * size_classes[c].block_bytes);
    }
    std::size_t large_bytes = 0;
    {
      const Guard guard{arenas_lock};
      for (const Span* span = arena.large_blocks; span != nullptr; span = span->next)
        large_bytes += usable_bytes_of(*span);
    }
    usage.slab_bytes = arena.sparse_pages * page_bytes;
    usage.large_bytes = large_bytes;
    usage.used_bytes = used_bytes + usage.large_bytes;
  });
}

}  // namespace ts::engine
