// OS pages within slabs. If no block that overlaps an OS page is in use, the page is purged. Blocks
// that begin in it are the slab's purged blocks. A refill takes other blocks first; if there are
// none, it restores the blocks of one page, whose OS pages are then touched again.
//
//   scavenge -> purge_slab
//   refill -> take_carved -> hooks::restore_blocks
#pragma once

#include "core/heap_hold.h"
#include "core/page_map.h"

namespace ts::engine {

// The OS pages in one page of the engine, a bit for each; 0 if OS pages are longer than that.
unsigned os_pages_in_page() noexcept;

// OS pages of a slab are purged in three steps, since another library may see the system call
// (os.h). Its replacement may allocate and free, and so change the slab:
//
//   begin_purge   the free blocks that overlap these pages count as used
//   discard       without a hold: the slab stays, and nothing hands those blocks out
//   end_purge     they are free again, and those that begin in these pages are purged
//
// If the thread never reaches the third step (a longjmp, a fork by another thread), they are lost.
struct SlabPurge {
  Span* slab = nullptr;
  std::uint64_t to_purge = 0;  // OS pages, a bit for each; 0: nothing to do
  std::uint64_t before = 0;    // purged before
  std::uint64_t purged = 0;    // purged afterwards, if the system takes all
  std::uint32_t count = 0;
  std::uint64_t blocks[max_slab_blocks / 64];  // `count` of them
};
// For all OS pages that no used block overlaps.
void begin_purge(ThreadHeap& heap, Span& slab, SlabPurge& purge) noexcept TS_REQUIRES(heap);
// Returns the pages that the system took.
std::uint64_t discard(const SlabPurge& purge) noexcept;
void end_purge(ThreadHeap& heap, const SlabPurge& purge, std::uint64_t gone) noexcept
    TS_REQUIRES(heap);

}  // namespace ts::engine
