#include "core/reclaim.h"

#include <bit>

#include "core/heap_hold.h"
#include "core/slabs.h"

namespace ts::engine {

namespace {

// A reclaim that leaves slabs on the stack delays the next one: by a page for every eight left.
constexpr std::int32_t left_slabs_per_page = 8;

// Whether every block of the slab is free or pending by its bits, and `blocks` of them are pending.
bool are_pending(const Span& slab, std::uint32_t blocks) noexcept {
  std::uint32_t found = 0;
  for (std::uint32_t first = 0; first < slab.slab_blocks; first += 64) {
    const std::uint64_t sent = remote_word_of(&slab, first / 64).load(std::memory_order_relaxed);
    if ((sent ^ free_word(slab, first / 64)) != lowest_bits(slab.slab_blocks - first)) return false;
    found += static_cast<std::uint32_t>(std::popcount(sent));
  }
  return found == blocks;
}

// Whether all used blocks of a slab on the stack are pending; for an empty slab, none. If the
// numbers disagree, after misuse or a fork that interrupted a thread, the slab is left to the
// owner.
bool is_reclaimable(const Span& slab) noexcept {
  // acquire: pairs with the additions in send(); sees the bits, and every use of the blocks is over
  const std::uint32_t pending = remote_frees_of(&slab).pending.load(std::memory_order_acquire);
  // acquire: pairs with release_to_slab()
  return use_of(slab).used.load(std::memory_order_acquire) == pending && are_pending(slab, pending);
}

void clear_remote_frees(const Span& slab) noexcept {
  // relaxed: a thread that frees a block of the slab's next owner got it through the page heap's
  // lock
  for (std::uint32_t first = 0; first < slab.slab_blocks; first += 64)
    remote_word_of(&slab, first / 64).store(0, std::memory_order_relaxed);
  remote_frees_of(&slab).pending.store(0, std::memory_order_relaxed);
}

// Takes the reclaimable slabs on the stack out of the heap, and returns them, linked by `next`.
Span* take_from_stack(ThreadHeap& heap) noexcept TS_REQUIRES(heap) {
  Span* taken = nullptr;
  Plain<Span*> first_left = nullptr;
  Span* last_left = nullptr;
  std::int32_t left = 0;
  Span* slab = take_ready(heap);
  while (slab != nullptr) {
    Span* const next = remote_frees_of(slab).next_ready;
    if (is_reclaimable(*slab)) {
      clear_remote_frees(*slab);
      take_slab_out(heap, *slab);
      slab->next = taken;
      taken = slab;
    } else {
      (last_left != nullptr ? remote_frees_of(last_left).next_ready : first_left) = slab;
      last_left = slab;
      ++left;
    }
    slab = next;
  }
  if (last_left != nullptr) push_ready(heap, first_left, remote_frees_of(last_left));
  heap.reclaimable_pages.store(-left / left_slabs_per_page, std::memory_order_relaxed);
  return taken;
}

// Takes the empty slabs that a heap keeps (relist_or_retire), which are the last of their lists,
// and links them before the others.
Span* take_empty(ThreadHeap& heap, Span* taken) noexcept TS_REQUIRES(heap) {
  for (Span* const first : heap.partial) {
    if (first == nullptr) continue;
    Span* const last = first->previous;
    if (used(*last) != 0 || !is_reclaimable(*last)) continue;
    take_slab_out(heap, *last);
    last->next = taken;
    taken = last;
  }
  return taken;
}

}  // namespace

Span* take_reclaimable(ThreadHeap& heap, bool takes_empty) noexcept {
  Span* const taken = has_ready(heap) ? take_from_stack(heap) : nullptr;
  return takes_empty ? take_empty(heap, taken) : taken;
}

bool retire_slabs(Span* slab) noexcept {
  const bool found = slab != nullptr;
  while (slab != nullptr) {
    Span* const next = slab->next;
    retire_slab(*slab);
    slab = next;
  }
  return found;
}

void reclaim(ThreadHeap& heap) noexcept {
  // If skipped, the next reclaimable slab triggers another try.
  if (!has_ready(heap) || !reclaim_lock.try_lock()) return;
  Span* taken = nullptr;
  if (try_hold(heap, Holder::reclaimer)) {
    taken = take_reclaimable(heap, false);
    end_hold(heap);
  }
  reclaim_lock.unlock();
  retire_slabs(taken);
}

}  // namespace ts::engine
