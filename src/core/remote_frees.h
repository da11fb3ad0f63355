// Frees of blocks by threads that do not own the block's slab. The freeing thread does not write to
// the block. It sets the block's bit (one per block, by number) in a batch of its own heap. (The
// exception, in release_slow(): a block of whole cache lines goes into the freeing thread's own
// cache bin while that has room, and comes here when the bin is flushed.) When a batch is full, or
// its place is needed, it is sent: its bits are added to the slab's word, then their number to the
// slab's `pending`. The thread that makes `pending` positive pushes the slab onto the owner's stack
// `ready`. The owner collects when a class has no more blocks, and occasionally. It takes the whole
// stack, and for each slab takes the count, then the bits, which say which blocks to free.
//
// - No block is lost: a bit that the owner does not see yet is counted after the owner took the
//   count. That addition finds 0 and pushes the slab again. (Senders set bits before the addition,
//   release; the owner takes the count, acquire, before it reads the bits.)
// - No slab is retired during a free: the owner lowers `used` by the count, not by the number of
//   bits found. So it reaches 0 only when every batch has been sent completely. The owner takes
//   counts only of slabs that it found on the stack, thus after a sender's push. After adding to a
//   positive count, a thread touches nothing of the slab (but it may read `used`, for a guess).
// - `next_ready` has one writer at a time: the thread that made the count positive, then the thread
//   that took the stack.
// - The stack is emptied by an exchange, never popped, so there is no ABA problem.
// - A reclaimer (reclaim.h) acts as the owner while it holds the owner's heap.
//
//   release_slow -> release_remote -> release_remote_slow -> send -> push_ready (reclaim.h)
//                                                         -> reclaim
//   refill -> collect -> collect_bits, sub_used, relist_or_retire
//
// tests/models runs this code under every interleaving of small programs.
#pragma once

#include "base/check.h"
#include "core/heap_hold.h"
#include "core/page_map.h"

namespace ts::engine {

// The heap's batch for this block's slab.
inline RemoteBatch& batch_for(ThreadHeap& heap, const BlockPlace& place) noexcept {
  return heap.batches[place.slab_page % batch_count];
}

// The cases that release_remote() does not handle.
[[gnu::noinline]] void release_remote_slow(ThreadHeap& heap, void* p, const SizeClass& c,
                                           FoundBy found_by) noexcept;

// Adds a block of another heap, which begins at this place, to a batch of `heap`, the calling
// thread's. A double free is reported as found by `found_by`.
inline void release_remote(ThreadHeap& heap, void* p, const BlockPlace& place, const SizeClass& c,
                           FoundBy found_by) noexcept {
  const std::uint32_t word = place.number / 64;
  const std::uint64_t bit = std::uint64_t{1} << place.number % 64;
  RemoteBatch& batch = batch_for(heap, place);
  const bool joins = batch.slab == page_map.spans + place.slab_page && batch.word == word &&
                     (batch.bits & bit) == 0 && batch.count + 1 != c.carve_blocks;
  if (!joins) [[unlikely]]
    return release_remote_slow(heap, p, c, found_by);
  batch.bits |= bit;
  // release: the child of a fork sends the batches of threads that it lacks. It may see a bit
  // without its count (that block may then stay used forever), but no count without its bit.
  fence(std::memory_order_release);
  ++batch.count;
}

// The same for a thread without a heap: sends the bit at once.
void release_remote_at_once(const BlockPlace& place, FoundBy found_by) noexcept;

// Sends all batches of the heap.
void flush_batches(ThreadHeap& heap) noexcept;

// Takes the pending frees of all slabs of the heap; true if there were any.
bool collect(ThreadHeap& heap) noexcept TS_REQUIRES(heap);

}  // namespace ts::engine
