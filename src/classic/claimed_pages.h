// Trimming: the whole pages inside the free blocks of a heap are discarded without a lock. Under
// the lock, each such block is claimed by its tag, as in a search of read_write.h: it stays where
// it is, and nobody takes it or merges with it, so its pages can be discarded safely.
//
//   trim_heap -> TaggedHeap::trim, claim_pages      under the lock
//             -> ClaimedPages::discard              without
//             -> TaggedHeap::free_pages             under the lock again
//
// Blocks that a thread has claimed when the process forks stay claimed in the child.
#pragma once

#include "base/event_counts.h"
#include "classic/block.h"
#include "classic/leaving_memory.h"
#include "os/os.h"

namespace ts::classic {

// Claimed blocks, linked through the word after their index links.
class ClaimedPages {
 public:
  // Whether a block has whole pages between its links and its footer.
  static bool has_pages(const Block* block) noexcept { return begin_of(block) < end_of(block); }

  bool is_empty() const noexcept { return newest_ == nullptr; }

  void push(Block* block) noexcept {
    block->link_word(2) = address_of(newest_);
    newest_ = block;
  }
  Block* pop() noexcept {
    Block* const block = newest_;
    if (block != nullptr) newest_ = next_of(block);
    return block;
  }

  // Other libraries may see the calls (os.h), so without a lock.
  void discard() const noexcept {
    const SeenByOthers seen;
    for (const Block* block = newest_; block != nullptr; block = next_of(block)) {
      const std::size_t bytes = end_of(block) - begin_of(block);
      os::discard(reinterpret_cast<void*>(begin_of(block)), bytes);
      if constexpr (counting) count_event(Event::purge_calls);
      if constexpr (counting) count_event(Event::purged_bytes, bytes);
    }
  }

 private:
  static Block* next_of(const Block* block) noexcept {
    return reinterpret_cast<Block*>(block->link_word(2));
  }
  static std::uintptr_t begin_of(const Block* block) noexcept {
    return align_up(block->address() + min_block_bytes, os::page_bytes());
  }
  static std::uintptr_t end_of(const Block* block) noexcept {
    return align_down(block->address() + block->block_bytes() - tag_bytes, os::page_bytes());
  }

  Block* newest_ = nullptr;
};

// Trims a heap: its end, its free chunks, and pages inside its free blocks. `with_heap(f)` calls
// f(TaggedHeap&) while no other thread is in the heap.
template <class WithHeap>
bool trim_heap(std::size_t keep_bytes, WithHeap with_heap) noexcept {
  const GivesBack gives_back;
  retry_left_behind();
  ClaimedPages claimed;
  bool gave = false;
  with_heap([&](auto& heap) {
    gave = heap.trim(keep_bytes);
    claimed = heap.claim_pages();
  });
  if (claimed.is_empty()) return gave;
  claimed.discard();
  with_heap([&](auto& heap) { heap.free_pages(claimed); });
  return true;
}

}  // namespace ts::classic
