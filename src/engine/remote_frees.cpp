#include "engine/remote_frees.h"

#include <bit>

#include "base/busy_mark.h"
#include "base/event_counts.h"
#include "engine/slabs.h"

namespace ts::engine {
namespace {

void send(Span& slab, std::uint32_t word, std::uint64_t bits, std::uint32_t count) noexcept {
  if constexpr (counting) count_event(Event::remote_batches_sent);
  // Read while the blocks still count as used: afterwards, the slab may be anybody's.
  const Entry entry = layout.map[number_of(&slab)].load(std::memory_order_relaxed);
  RemoteFrees& frees = remote_frees_of(&slab);
  // release: what this thread did to the blocks is over (pairs with the owner's taking of the bits)
  const std::uint64_t before =
      remote_word_of(&slab, word).fetch_or(bits, std::memory_order_release);
  if (const std::uint64_t twice = before & bits; twice != 0) [[unlikely]] {
    const std::size_t bytes = size_class_of(entry).block_bytes;
    const std::size_t number = word * 64 + static_cast<unsigned>(std::countr_zero(twice));
    report_misuse(Misuse::double_free, FoundBy::a_later_call, memory_of(&slab) + number * bytes,
                  bytes);
    const auto repeated = static_cast<std::uint32_t>(std::popcount(twice));
    if (count <= repeated) return;
    count -= repeated;  // each comes home once
  }
  // release: the bits are set before they are counted. acquire: pairs with the owner's exchange,
  // after which next_ready is ours to write.
  if (frees.pending.fetch_add(count, std::memory_order_acq_rel) != 0) return;
  std::atomic<Span*>& ready = heap_of(entry)->ready;
  Span* head = ready.load(std::memory_order_relaxed);
  do {
    frees.next_ready = head;
  } while (!ready.compare_exchange_weak(head, &slab, std::memory_order_release,
                                        std::memory_order_relaxed));
}

// Sends the blocks of a batch home, of which there are some; it is empty then.
void send(RemoteBatch& batch) noexcept {
  const std::uint64_t bits = batch.bits;
  const std::uint32_t count = batch.count;
  batch.bits = 0;
  batch.count = 0;
  send(*batch.slab, batch.word, bits, count);
}

// Empties the batch and begins it anew for other blocks.
void begin_batch(RemoteBatch& batch, Span& slab, std::uint32_t word) noexcept {
  if (batch.count != 0) send(batch);
  batch.bits = 0;  // of what was never counted (release_remote)
  std::atomic_thread_fence(std::memory_order_release);  // before the slab that they are not of
  batch = {&slab, 0, word, 0};
  __builtin_prefetch(&remote_word_of(&slab, word), 1);  // by the time that the batch is full
}

}  // namespace

void release_remote_slow(ThreadHeap& heap, void* p, const SizeClass& c, FoundBy found_by) noexcept {
  const BusyMark mark{heap.busy};
  const BlockPlace place = place_of(p, c);
  if (!place.is_beginning) [[unlikely]]
    return report_misuse(Misuse::no_beginning, found_by, p, c.block_bytes);
  Span& slab = layout.spans[place.slab_number];
  const std::uint32_t word = place.number / 64;
  const std::uint64_t bit = std::uint64_t{1} << place.number % 64;
  RemoteBatch& batch = batch_for(heap, place);
  if (batch.slab != &slab || batch.word != word) begin_batch(batch, slab, word);
  if ((batch.bits & bit) != 0) [[unlikely]]
    return report_misuse(Misuse::double_free, found_by, p, c.block_bytes);
  batch.bits |= bit;
  // A page of blocks is the most that a thread keeps from their owner.
  if (++batch.count == c.carve_blocks) send(batch);
}

void release_remote_at_once(void* p, const SizeClass& c) noexcept {
  const BlockPlace place = place_of(p, c);
  if (!place.is_beginning) [[unlikely]]
    return report_misuse(Misuse::no_beginning, FoundBy::free, p, c.block_bytes);
  send(layout.spans[place.slab_number], place.number / 64, std::uint64_t{1} << place.number % 64,
       1);
}

void send_batches(ThreadHeap& heap) noexcept {
  for (RemoteBatch& batch : heap.batches) {
    if (batch.count != 0) send(batch);
  }
}

bool drain(ThreadHeap& heap) noexcept {
  if (heap.ready.load(std::memory_order_relaxed) == nullptr) return false;
  if constexpr (counting) count_event(Event::remote_drains);
  // acquire: pairs with the push in send(); sees next_ready
  Span* slab = heap.ready.exchange(nullptr, std::memory_order_acquire);
  while (slab != nullptr) {
    RemoteFrees& frees = remote_frees_of(slab);
    Span* const next = frees.next_ready;  // before the count: then others may write it again
    if (next != nullptr) {
      __builtin_prefetch(&remote_frees_of(next), 1);
      __builtin_prefetch(next, 1);
    }
    // acquire: pairs with the addition in send(); sees the bits of all that are counted. release:
    // pairs with the next addition to 0, whose thread writes next_ready, which we have read
    const std::uint32_t counted = frees.pending.exchange(0, std::memory_order_acq_rel);
    const SizeClass& c = size_classes[slab->size_class];
    std::uint32_t strays = 0;  // of places where no block is in use
    for (std::uint32_t first = 0; first < slab->slab_blocks; first += 64) {
      std::atomic<std::uint64_t>& word = remote_word_of(slab, first / 64);
      if (word.load(std::memory_order_relaxed) == 0) continue;
      // acquire: pairs with the setting of the bits; what the freeing thread did to the blocks is
      // over
      for (std::uint64_t bits = word.exchange(0, std::memory_order_acquire); bits != 0;
           bits &= bits - 1) {
        const std::size_t number = first + static_cast<unsigned>(std::countr_zero(bits));
        std::byte* const p = memory_of(slab) + number * c.block_bytes;
        auto* const block = reinterpret_cast<Block*>(p);
        if (number >= slab->carved || heap.bins[slab->size_class].head == block) [[unlikely]] {
          const bool is_stray = number >= slab->carved;
          report_misuse(is_stray ? Misuse::no_beginning : Misuse::double_free,
                        FoundBy::a_later_call, p, c.block_bytes);
          ++strays;
          continue;
        }
        push(*slab, block);
      }
    }
    // A stray, too, is counted, now or later.
    set_used(*slab, used(*slab) + strays);
    take_count_home(*slab, counted);
    settle(heap, *slab);
    slab = next;
  }
  return true;
}

}  // namespace ts::engine
