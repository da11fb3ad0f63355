// OS pages within slabs. Where no block that overlaps an OS page is in use, the page goes back to
// the operating system. Blocks that begin in it are on no list then, since their links are gone:
// they are the slab's purged blocks. A refill that needs them links them again, and the pages are
// touched anew.
//
//   tend -> purge_slab
//   refill -> take_used -> restore_blocks
#pragma once

#include "engine/heap_hold.h"
#include "engine/page_map.h"

namespace ts::engine {

// The OS pages of one page of the engine, a bit for each; 0 where OS pages are longer than that.
unsigned os_pages_in_page() noexcept;

// Whether the block, a carved one, begins in a purged OS page: then it is free, and on no list.
bool is_purged(const Span& slab, std::uint32_t number) noexcept;

// Gives all OS pages of the slab back that no used block overlaps.
void purge_slab(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap);

// The same of all slabs of the heap that have free blocks.
void purge_slabs(ThreadHeap& heap) noexcept TS_REQUIRES(heap);

// Puts purged blocks of one page on the free list. The slab, one of the heap, must have some.
void restore_blocks(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap);

}  // namespace ts::engine
