#include "core/remote_frees.h"

#include <bit>

#include "base/busy_mark.h"
#include "base/event_counts.h"
#include "core/deferred_work.h"
#include "core/hooks.h"
#include "core/misuse.h"
#include "core/reclaim.h"
#include "core/slabs.h"

namespace ts::engine {
namespace {

// Whether all used blocks of a slab are pending, with `count` more: a guess, since the slab may
// have another owner by now. The cache line of `used` belongs to the owner, and reading it costs
// more than everything else here. So it is not read while little is pending; after a full batch,
// which another one probably follows; or if no other block can be in use.
bool is_probably_all(const Span& slab, const SizeClass& c, std::uint32_t pending,
                     std::uint32_t more) noexcept {
  const std::size_t slab_bytes = c.slab_pages * page_bytes;
  const std::size_t pending_bytes = std::size_t{pending} * c.block_bytes;
  if (pending_bytes + c.block_bytes > slab_bytes) return true;
  if (pending_bytes < slab_bytes / 8 || (more == c.carve_blocks && more != 1)) return false;
  return pending == used(slab);
}

// Relaxed: a hint, like is_abandoned.
bool is_idle_arena(const ThreadHeap& heap) noexcept {
  return is_arena(heap) && is_idle_mark(heap.user.load(std::memory_order_relaxed));
}

// Sends frees; returns the owner's heap if it is worth a reclaim, else null.
ThreadHeap* send(Span& slab, std::uint32_t word, std::uint64_t bits, std::uint32_t count,
                 FoundBy found_by = FoundBy::a_later_call) noexcept {
  if constexpr (counting) count_event(Event::remote_batches_sent);
  // Read while the blocks still count as used: afterwards, the slab may have another owner.
  const PageMapEntry entry = span_entry(slab);
  RemoteFrees& frees = remote_frees_of(&slab);
  // release: every use of the blocks is over (pairs with the exchange of the bits in collect_bits)
  const std::uint64_t before =
      remote_word_of(&slab, word).fetch_or(bits, std::memory_order_release);
  if (const std::uint64_t twice = before & bits; twice != 0) [[unlikely]] {
    const std::size_t bytes = size_class_of(entry).block_bytes;
    const std::size_t number = word * 64 + static_cast<unsigned>(std::countr_zero(twice));
    report_misuse(Misuse::double_free, found_by, memory_of(&slab) + number * bytes, bytes);
    const auto repeated = static_cast<std::uint32_t>(std::popcount(twice));
    if (count <= repeated) return nullptr;
    count -= repeated;  // each block is counted once
  }
  // release: the bits are set before they are counted. acquire: pairs with the exchange of the
  // count in collect(), after which this thread writes next_ready.
  const std::uint32_t pending = frees.pending.fetch_add(count, std::memory_order_acq_rel);
  ThreadHeap& owner = *heap_of(entry);
  if (pending == 0) push_ready(owner, &slab, frees);
  if (pending == 0 && (is_abandoned(owner) || is_idle_arena(owner))) [[unlikely]]
    hooks::frees_stay_uncollected(size_class_of(entry).slab_pages);
  const SizeClass& c = size_class_of(entry);
  if (!is_probably_all(slab, c, pending + count, count)) return nullptr;
  return note_reclaimable(owner, c.slab_pages) ? &owner : nullptr;
}

// Sends a nonempty batch, and empties it.
ThreadHeap* send(RemoteBatch& batch) noexcept {
  const std::uint64_t bits = batch.bits;
  const std::uint32_t count = batch.count;
  batch.bits = 0;
  batch.count = 0;
  return send(*batch.slab, batch.word, bits, count);
}

// Empties the batch, as send() does, and starts it for other blocks.
ThreadHeap* begin_batch(RemoteBatch& batch, Span& slab, std::uint32_t word) noexcept {
  ThreadHeap* const to_reclaim = batch.count != 0 ? send(batch) : nullptr;
  batch.bits = 0;  // drops bits that a fork cut off before they were counted (release_remote)
  // release: a forked child never sees the new slab with the bits of the old one
  fence(std::memory_order_release);
  batch = {&slab, 0, word, 0};
  prefetch_to_write(&remote_word_of(&slab, word));  // before the batch is full
  return to_reclaim;
}

// Reclaims, unless the caller holds the heap that it flushes.
void reclaim_within_free(ThreadHeap* heap, bool is_held = false) noexcept {
  if (heap == nullptr) [[likely]]
    return;
  reclaim(*heap);
  if (!is_held) send_purges_if_any();
}

// release_remote_slow(), under the busy mark that keeps a fork from using the heap. Returns a heap
// that is worth a reclaim, or null.
ThreadHeap* put_into_batch(ThreadHeap& heap, void* p, const SizeClass& c,
                           FoundBy found_by) noexcept {
  const BusyMark mark{heap.busy};
  const BlockPlace place = place_of(p, c);
  Span& slab = page_map.spans[place.slab_page];
  const std::uint32_t word = place.number / 64;
  const std::uint64_t bit = std::uint64_t{1} << place.number % 64;
  RemoteBatch& batch = batch_for(heap, place);
  ThreadHeap* to_reclaim = nullptr;
  if (batch.slab != &slab || batch.word != word) to_reclaim = begin_batch(batch, slab, word);
  if ((batch.bits & bit) != 0) [[unlikely]] {
    report_misuse(Misuse::double_free, found_by, p, c.block_bytes);
    return to_reclaim;
  }
  batch.bits |= bit;
  // A thread keeps at most a batch of carve_blocks (4 KiB of blocks) from their owner.
  if (++batch.count != c.carve_blocks) return to_reclaim;
  ThreadHeap* const also = send(batch);
  return also != nullptr ? also : to_reclaim;
}

// Calls `visit(block, bit)` for each block of a word.
[[gnu::always_inline]] inline void for_each_block(const Span& slab, std::uint32_t first,
                                                  std::uint64_t bits, auto visit) noexcept {
  const std::size_t bytes = size_classes[slab.size_class].block_bytes;
  std::byte* const begin = memory_of(&slab) + first * bytes;
  for (; bits != 0; bits &= bits - 1)
    visit(begin + static_cast<unsigned>(std::countr_zero(bits)) * bytes, bits & (~bits + 1));
}

// Which of the given blocks of a word have a key: the owner has freed them as well, into a bin.
std::uint64_t blocks_with_key(const Span& slab, std::uint32_t first, std::uint64_t bits) noexcept {
  std::uint64_t found = 0;
  for_each_block(slab, first, bits, [&](const std::byte* block, std::uint64_t bit) {
    if (has_key(block)) found |= bit;
  });
  return found;
}

[[gnu::cold, gnu::noinline]] void report_invalid_frees(const Span& slab, std::uint32_t first,
                                                       std::uint64_t bits) noexcept {
  for (; bits != 0; bits &= bits - 1) {
    const std::uint32_t number = first + static_cast<unsigned>(std::countr_zero(bits));
    report_misuse(kind_of_free(slab, {first_page_of(&slab), number, true}), FoundBy::a_later_call,
                  block_at(slab, number), size_classes[slab.size_class].block_bytes);
  }
}

// Frees the blocks whose bits were sent. They are read only if a bin of the owner may contain them,
// and get keys if other free blocks of the slab may have them. Reports blocks that were already
// free, and returns their number.
std::uint32_t collect_bits(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap) {
  const bool may_be_in_bin = first_block(heap.bins[slab.size_class]) != nullptr ||
                             heap.spare_lists_of[slab.size_class] != 0 || heap.has_sampling_bins;
  std::uint32_t invalid_frees = 0;
  for (std::uint32_t first = 0; first < slab.slab_blocks; first += 64) {
    Atomic<std::uint64_t>& word = remote_word_of(&slab, first / 64);
    if (word.load(std::memory_order_relaxed) == 0) continue;
    // acquire: pairs with the setting of the bits; every use of the blocks is over
    const std::uint64_t sent = word.exchange(0, std::memory_order_acquire);
    Atomic<std::uint64_t>& free_bits = free_word_of(slab, first / 64);
    const std::uint64_t free = free_bits.load(std::memory_order_relaxed);
    // The lines are in the caches of the threads that freed the blocks; fetch them in parallel.
    if (slab.has_keys || may_be_in_bin)
      for_each_block(slab, first, sent,
                     [](std::byte* block, std::uint64_t) { prefetch_to_write(block); });
    std::uint64_t invalid = sent & free;
    if (may_be_in_bin) invalid |= blocks_with_key(slab, first, sent & ~free);
    if (invalid != 0) [[unlikely]] {
      report_invalid_frees(slab, first, invalid);
      invalid_frees += static_cast<std::uint32_t>(std::popcount(invalid));
    }
    if (slab.has_keys)
      for_each_block(slab, first, sent & ~invalid,
                     [](std::byte* block, std::uint64_t) { set_key(block); });
    free_bits.store(free | (sent & ~invalid), std::memory_order_relaxed);
  }
  if (!slab.has_keys && !is_keyless(slab)) set_keyless(slab, true);
  return invalid_frees;
}

}  // namespace

void release_remote_slow(ThreadHeap& heap, void* p, const SizeClass& c, FoundBy found_by) noexcept {
  ThreadHeap* const to_reclaim = put_into_batch(heap, p, c, found_by);
  // relaxed: this thread's own hold
  reclaim_within_free(to_reclaim, heap.holder.load(std::memory_order_relaxed) == Holder::owner);
}

void release_remote_at_once(const BlockPlace& place, FoundBy found_by) noexcept {
  reclaim_within_free(send(page_map.spans[place.slab_page], place.number / 64,
                           std::uint64_t{1} << place.number % 64, 1, found_by));
}

// Does not reclaim: the caller is in a slow path, and there will be other opportunities.
void flush_batches(ThreadHeap& heap) noexcept {
  for (RemoteBatch& batch : heap.batches) {
    if (batch.count != 0) send(batch);
  }
}

bool collect(ThreadHeap& heap) noexcept {
  if (!has_ready(heap)) return false;
  if constexpr (counting) count_event(Event::remote_collects);
  heap.reclaimable_pages.store(0, std::memory_order_relaxed);
  Span* slab = take_ready(heap);
  while (slab != nullptr) {
    RemoteFrees& frees = remote_frees_of(slab);
    Span* const next = frees.next_ready;  // read before others may write it again
    if (next != nullptr) {
      prefetch_to_write(&remote_frees_of(next));
      prefetch_to_write(next);
    }
    // acquire: pairs with the addition in send(); sees the bits of all that are counted. release:
    // pairs with the next addition to 0, whose thread writes next_ready, which this one has read
    const std::uint32_t counted = frees.pending.exchange(0, std::memory_order_acq_rel);
    const std::uint32_t invalid_frees = collect_bits(heap, *slab);
    // `counted` includes invalid frees, now or next time; their blocks have not left `used` yet.
    add_used(*slab, invalid_frees);
    sub_used(*slab, counted);
    relist_or_retire(heap, *slab);
    slab = next;
  }
  return true;
}

}  // namespace ts::engine
