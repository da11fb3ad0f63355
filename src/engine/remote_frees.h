// How a block comes home that another thread than its heap's frees. The freeing thread does not
// write to the block. It sets the block's bit (one per block, by number) in a batch of its own
// heap; when the batch is full, or its place is needed for another, it is sent: the bits into the
// slab's word, then their number onto the slab's `pending`; and whoever makes `pending` positive
// pushes the slab onto the owner's stack `ready`. The owner, when a class has no more blocks of its
// own, and now and then, takes the stack, and for each slab takes the count, then the bits, and puts
// the blocks on the slab's list.
//
// - No block is lost: a bit that the owner does not see yet belongs to a batch whose addition comes
//   after the owner took the count; that addition finds 0 and pushes the slab again. (Bits are set
//   before the addition, release; the owner takes the count, acquire, before it looks at the bits.)
// - No slab is returned under a free in progress: the owner's `used` falls by the count, not by the
//   bits found, so it reaches 0 only when every batch has been sent whole; and the one that still
//   has to push comes before the owner can take the count, since the owner takes counts of slabs that
//   it found on the stack only. Between adding to a positive count and returning, a thread touches
//   nothing of the slab (but looks at `used`, for a guess).
// - `next_ready` has one writer at a time: who made the count positive, then who took the stack.
// - The stack is emptied by an exchange, never popped, so it knows no ABA.
// - A sweeper (sweep.h) is to all this the owner, while that waits.
//
// tests/models/remote_free_test.cpp goes through every interleaving of a model of this.
#pragma once

#include "base/check.h"
#include "engine/layout.h"

namespace ts::engine {

// Where a pointer into a slab leads: to which slab, to which of its blocks, and whether to the
// block's beginning. (One behind the slab's last block may begin there, too: see drain.)
struct BlockPlace {
  std::size_t slab_number;
  std::uint32_t number;
  bool is_beginning;
};

// The owner writes to the slab's descriptor all the time; another thread does not look into it where
// it need not.
inline BlockPlace place_of(const void* p, const SizeClass& c) noexcept {
  const std::size_t granule = granule_of(p);
  std::size_t offset = (address_of(p) - layout.base) % granule_bytes;
  std::size_t back = 0;
  if (c.slab_granules != 1) {
    back = layout.spans[granule].back;
    offset += back * granule_bytes;
  }
  const std::uint32_t number = number_in_slab(c, offset);
  return {granule - back, number, std::size_t{number} * c.block_bytes == offset};
}

// Where the blocks of the slab that share this word are collected.
inline RemoteBatch& batch_for(ThreadHeap& heap, const BlockPlace& place) noexcept {
  return heap.batches[place.slab_number % batch_count];
}

// What release_remote() leaves out.
[[gnu::noinline]] void release_remote_slow(ThreadHeap& heap, void* p, const SizeClass& c,
                                           FoundBy found_by) noexcept;

// Takes a block of another heap, at this place, into a batch of `heap`, which is the calling
// thread's. Of misuse it reports that it was found in this call.
inline void release_remote(ThreadHeap& heap, void* p, const BlockPlace& place, const SizeClass& c,
                           FoundBy found_by) noexcept {
  const std::uint32_t word = place.number / 64;
  const std::uint64_t bit = std::uint64_t{1} << place.number % 64;
  RemoteBatch& batch = batch_for(heap, place);
  const bool joins = batch.slab == layout.spans + place.slab_number && batch.word == word &&
                     (batch.bits & bit) == 0 && batch.count + 1 != c.carve_blocks;
  if (!joins || !place.is_beginning) [[unlikely]]
    return release_remote_slow(heap, p, c, found_by);
  batch.bits |= bit;
  // release: the child of a fork, which sends the batches of threads that it does not have, may see
  // a bit that is not counted (its block may count as used for ever), but no count without its bit.
  std::atomic_thread_fence(std::memory_order_release);
  ++batch.count;
}

// The same from a thread that has no heap: the block goes home at once.
void release_remote_at_once(void* p, const SizeClass& c) noexcept;

// Sends what the thread keeps in batches.
void send_batches(ThreadHeap& heap) noexcept;

// Takes what other threads sent home to this heap, which the calling thread holds; true if there was
// anything.
bool drain(ThreadHeap& heap) noexcept;

}  // namespace ts::engine
