// One heap over boundary tags: it grows, finds blocks by the fit, splits, merges, and returns
// memory. Every strategy but the lock-free one uses the same code. The strategy excludes concurrent
// calls, by a lock or by one heap per thread.
//
//   allocate -> allocate_from_free -> FreeBlocks::find, take    free_blocks.h: split
//            -> grow_and_allocate_slow
//               -> HeapChunks::grow_or_make_room                heap_chunks.h: growth
//   release  -> FreeBlocks::add                                 free_blocks.h: merge
//            -> HeapChunks::give_back_end                       above the trim threshold
//   resize   -> FreeBlocks::merge_into_used, cut_tail
//
// `Sharing` determines which neighbours of a block this heap may change (sharing.h).
#pragma once

#include "classic/heap_chunks.h"

namespace ts::classic {

template <FitPolicy Fit, class Sharing = Exclusive>
class TaggedHeap {
 public:
  constexpr TaggedHeap(Source& source, std::uint32_t owner,
                       std::size_t trim_threshold_bytes) noexcept
      : free_{owner}, chunks_{source}, trim_threshold_bytes_{trim_threshold_bytes} {}

  void* allocate(const Request& request) noexcept {
    if (request.search_bytes == 0) return nullptr;
    void* const payload = allocate_from_free(request);
    return payload != nullptr ? payload : grow_and_allocate_slow(request);
  }

  // As allocate(), but null where the heap would have to grow.
  void* allocate_from_free(const Request& request) noexcept {
    Block* const block = find(request, [](const Block* b) { return Free::unclaimed(b); });
    return block == nullptr ? nullptr : take(block, request);
  }

  // Finds the block for a request by the fit; only reads, unless `accept` writes.
  template <class Accept>
  Block* find(const Request& request, Accept accept) const noexcept {
    return free_.find(request, accept);
  }

  // Takes a block that find() returned.
  void* take(Block* block, const Request& request) noexcept {
    void* const payload = free_.take(block, request);
    validate_now_and_then();
    return payload;
  }

  void release(void* payload) noexcept {
    Block* const block = Block::of_payload(payload);
    const Tag tag = block->tag();
    require(tag.used() && tag.block_bytes() >= min_block_bytes, not_in_use, payload);
    if (!Sharing::owns(tag, owner()))
      block->set_tag(Tag{tag.block_bytes(), owner(), tag.flags(Tag::used_flag | Tag::first_flag)});
    Block* const merged = free_.add(block);
    if (merged->block_bytes() >= trim_threshold_bytes_ ||
        (free_.bytes() >= trim_threshold_bytes_ && Chunks::is_whole_mapping(merged, owner())))
      chunks_.give_back_end(free_, merged, trim_keep_bytes);
    validate_now_and_then();
  }

  // Makes a used block hold `bytes` in place; false (and nothing changed) if it cannot.
  bool resize(void* payload, std::size_t bytes) noexcept {
    Block* const block = Block::of_payload(payload);
    const Tag tag = block->tag();
    const std::size_t wanted = block_bytes_for(bytes);
    if (wanted == 0) return false;
    if (!Sharing::owns(tag, owner()))
      return wanted <= tag.block_bytes();  // another heap's: not ours to cut
    if (wanted > tag.block_bytes() && !free_.merge_into_used(block, wanted)) return false;
    free_.cut_tail(block, wanted);
    validate_now_and_then();
    return true;
  }

  // Returns memory at the end of the segment and free chunks.
  bool trim(std::size_t keep_bytes) noexcept { return chunks_.trim(free_, keep_bytes); }

  // The free blocks with whole pages inside, to be discarded (claimed_pages.h).
  ClaimedPages claim_pages() noexcept { return free_.claim_pages(); }
  void free_pages(ClaimedPages claimed) noexcept { free_.free_pages(claimed); }

  // Grows by a free block of `bytes`. For strategies that give a heap a fixed share; allocate()
  // grows by itself.
  bool grow(std::size_t bytes) noexcept { return chunks_.grow(free_, bytes); }

  // Makes grow() fail.
  void forbid_growth() noexcept { chunks_.forbid_growth(); }

  // Frees every claimed block: the threads that claimed them are gone.
  void free_claimed() noexcept { free_.free_claimed(); }

  std::uint32_t owner() const noexcept { return free_.owner(); }

  // Adds free_bytes and free_blocks.
  void measure(HeapMeasures& measures) const noexcept {
    measures.free_bytes += free_.bytes();
    measures.free_blocks += free_.blocks();
  }

  bool is_valid() const noexcept { return free_.is_valid(); }

 private:
  using Free = FreeBlocks<Fit, Sharing>;
  using Chunks = HeapChunks<Fit, Sharing>;

  static constexpr unsigned operations_per_validation = debug_level >= 3 ? 1 : 4096;

  [[gnu::noinline]] void* grow_and_allocate_slow(const Request& request) noexcept {
    void* payload = nullptr;
    while (payload == nullptr && chunks_.grow_or_make_room(free_, request.search_bytes))
      payload = allocate_from_free(request);
    return payload;
  }

  void validate_now_and_then() noexcept {
    if constexpr (debug_level >= 2) {
      if (++operations_ % operations_per_validation == 0)
        require(is_valid(), "heap corrupted", this);
    }
  }

  Free free_;
  Chunks chunks_;
  std::size_t trim_threshold_bytes_;  // const
  unsigned operations_ = 0;
};

}  // namespace ts::classic
