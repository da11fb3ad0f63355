#include "features/arenas/arena_blocks.h"

#include "base/check.h"
#include "core/hooks.h"

namespace ts::engine {
namespace {

void unlink_large(ThreadHeap& arena, Span& span) noexcept TS_REQUIRES(arenas_lock) {
  Plain<Span*>& link_to_it = span.previous != nullptr ? span.previous->next : arena.large_blocks;
  check(link_to_it == &span, "an arena's large blocks are linked in both directions", &span);
  link_to_it = span.next;
  if (span.next != nullptr) span.next->previous = span.previous;
  span.arena.store(0, std::memory_order_relaxed);
}

}  // namespace

// Adds the block to the list of the arena whose scope the thread is in, if it is in one.
void hooks::large_block_begins(Span& span) noexcept {
  if (!is_in_scope()) return;
  ThreadHeap& arena = current_heap();
  const Guard guard{arenas_lock};
  Span* const first = arena.large_blocks;
  span.previous = nullptr;
  span.next = first;
  if (first != nullptr) first->previous = &span;
  arena.large_blocks = &span;
  span.arena.store(number_of(arena), std::memory_order_relaxed);
}

void remove_large_block(Span& span) noexcept {
  const Guard guard{arenas_lock};
  // If this free races with the arena's end, that may have removed the block.
  const std::uint32_t number = span.arena.load(std::memory_order_relaxed);
  if (number != 0) unlink_large(page_map.heaps[number], span);
}

Span* pop_large_block(ThreadHeap& arena) noexcept {
  const Guard guard{arenas_lock};
  Span* const span = arena.large_blocks;
  if (span != nullptr) unlink_large(arena, *span);
  return span;
}

}  // namespace ts::engine
