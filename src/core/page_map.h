// The page map: finds the structures that belong to an address, by its page. One range of addresses
// (address_range.h); a prefix of each part is in use:
//
//   | map, 8 B a page | spans, 64 B | uses, 64 B | more free bits, 72 B | remote frees, 192 B |
//   | heaps, 24 KiB | pages, 16 KiB |
//
// free() reads one element of the map, one load away and never in memory that the program uses.
// Address arithmetic is here; the structures are in types.h.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "base/bits.h"
#include "base/event_counts.h"
#include "core/types.h"

namespace ts::engine {

// All const once page_count is positive, except the counts. What malloc and free read lies in one
// cache line, which must not be at the beginning of a page (HeapBeginning).
struct alignas(1024) PageMap {
  std::byte unused[5 * 64] = {};
  std::uintptr_t base = 0;                 // address of page 0
  std::atomic<std::size_t> page_count{0};  // any: pages in use
  MapPage* pages = nullptr;
  // The lowest address of any block; above bypassed_bin() until there is one. malloc compares the
  // head of a list with it instead of null: one comparison detects the end of a list, a bypassed
  // bin, and most overwritten links.
  std::atomic<std::size_t> lowest_block{2};
  Span* spans = nullptr;
  SlabUse* uses = nullptr;
  std::ptrdiff_t use_distance = 0;         // of `uses` from `spans`, in bytes
  MoreFreeBits* more_free_bits = nullptr;  // touched only for slabs of the smallest classes
  RemoteFrees* remote_frees = nullptr;
  ThreadHeap* heaps = nullptr;
  std::size_t pages_per_os_page = 1;         // 1 also where OS pages are shorter
  std::atomic<std::uint32_t> heap_count{0};  // any, relaxed: heaps ever created
};
inline constinit PageMap page_map;

// ---- pages ----

inline std::size_t page_of(const void* p) noexcept {
  return (address_of(p) - page_map.base) >> page_shift;
}

// The entry of a page; 0 outside of the engine's memory.
inline PageMapEntry entry_at(std::size_t page) noexcept {
  // relaxed: a thread learns a block's address from the thread that allocated it, and with the
  // address everything that was stored before
  if (!is_below(page, page_map.page_count)) [[unlikely]]
    return 0;
  return page_map.pages[page].entry.load(std::memory_order_relaxed);
}
inline PageMapEntry entry_of(const void* p) noexcept { return entry_at(page_of(p)); }

// ---- spans ----

inline std::size_t first_page_of(const Span* span) noexcept {
  return static_cast<std::size_t>(span - page_map.spans);
}

inline std::byte* memory_of(const Span* span) noexcept {
  return reinterpret_cast<std::byte*>(page_map.base) + (first_page_of(span) << page_shift);
}

inline PageMapEntry span_entry(const Span& span) noexcept {
  return page_map.pages[first_page_of(&span)].entry.load(std::memory_order_relaxed);
}

// ---- blocks of slabs ----

// Offset of the address in its slab.
inline std::uint32_t offset_in_slab(const void* p, const MapPage& page) noexcept {
  return static_cast<std::uint32_t>(address_of(p)) - page.slab_begin;
}

// The slab that contains the address, which is on that page. Does not read the slab's descriptor,
// to which the owner writes all the time.
inline Span* slab_at(const void* p, std::size_t page) noexcept {
  return page_map.spans + page - (offset_in_slab(p, page_map.pages[page]) >> page_shift);
}
inline Span* slab_of(const void* p) noexcept { return slab_at(p, page_of(p)); }

// A pointer into a slab: the slab, the block, and whether the pointer is the block's beginning.
// (Blocks that were never carved, and offsets after the last block, also have a place. Only
// collect() handles these.)
struct BlockPlace {
  std::size_t slab_page;  // the slab's first page
  std::uint32_t number;
  bool is_beginning;
};

// Finds both with one multiplication, as number_in_slab() and is_multiple() would.
[[gnu::always_inline]] inline BlockPlace place_in(const void* p, std::size_t page,
                                                  std::uint32_t reciprocal) noexcept {
  const std::uint32_t offset = offset_in_slab(p, page_map.pages[page]);
  const std::uint64_t product = std::uint64_t{offset} * reciprocal;
  return {page - (offset >> page_shift), static_cast<std::uint32_t>(product >> 32),
          static_cast<std::uint32_t>(product) < reciprocal};
}
inline BlockPlace place_of(const void* p, const SizeClass& c) noexcept {
  return place_in(p, page_of(p), c.reciprocal);
}

inline std::byte* block_at(const Span& slab, std::size_t number) noexcept {
  return memory_of(&slab) + number * size_classes[slab.size_class].block_bytes;
}

// ---- free blocks of slabs ----

// The tables of both have elements of one length, at a fixed distance.
inline SlabUse& use_of(const Span& slab) noexcept {
  static_assert(sizeof(SlabUse) == sizeof(Span));
  auto* const at = reinterpret_cast<const std::byte*>(&slab) + page_map.use_distance;
  return *reinterpret_cast<SlabUse*>(const_cast<std::byte*>(at));
}

// The program's blocks, those in cache bins and in batches, pending ones, and free ones while OS
// pages under them are purged.
inline std::uint32_t used(const Span& slab) noexcept {
  return use_of(slab).used.load(std::memory_order_relaxed);
}

// A word of a slab's bits, one for each block, by number.
inline Atomic<std::uint64_t>& free_word_at(std::size_t slab_page, std::size_t index) noexcept {
  if (index < MoreFreeBits::first_word) [[likely]]
    return page_map.uses[slab_page].free_bits[index];
  return page_map.more_free_bits[slab_page].words[index - MoreFreeBits::first_word];
}
inline Atomic<std::uint64_t>& free_word_of(const Span& slab, std::size_t index) noexcept {
  return index < MoreFreeBits::first_word ? use_of(slab).free_bits[index]
                                          : free_word_at(first_page_of(&slab), index);
}
inline std::uint64_t free_word(const Span& slab, std::size_t index) noexcept {
  return free_word_of(slab, index).load(std::memory_order_relaxed);
}

inline bool is_free(std::size_t slab_page, std::uint32_t number) noexcept {
  return (free_word_at(slab_page, number / 64).load(std::memory_order_relaxed) >> number % 64 &
          1) != 0;
}
inline bool is_free(const BlockPlace& place) noexcept {
  return is_free(place.slab_page, place.number);
}

// A word whose lowest `count` bits are set, at most 64.
constexpr std::uint64_t lowest_bits(std::uint32_t count) noexcept {
  return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

// How many words of bits a slab has.
inline std::size_t words_of(const Span& slab) noexcept { return (slab.slab_blocks + 63U) / 64; }

inline bool has_free_block(const Span& slab) noexcept {
  // Frees that were collected before they were counted may make up the difference.
  if (used(slab) < slab.slab_blocks) return true;
  for (std::size_t i = 0; i < words_of(slab); ++i) {
    if (free_word(slab, i) != 0) return true;
  }
  return false;
}

inline std::uint32_t count_free_blocks(const Span& slab) noexcept {
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < words_of(slab); ++i)
    count += static_cast<std::uint32_t>(std::popcount(free_word(slab, i)));
  return count;
}

// How many bytes were returned to the system so far, for reports.
inline constinit Atomic<std::size_t> given_back_bytes{0};

inline void count_given_back(std::size_t bytes) noexcept {
  // relaxed: it orders nothing
  given_back_bytes.fetch_add(bytes, std::memory_order_relaxed);
  if constexpr (counting) count_event(Event::purged_bytes, bytes);
}

// The limit for a slab that has not become sparse since it last gave blocks: a quarter of its
// blocks.
inline std::uint16_t sparse_limit_of(const Span& slab) noexcept {
  constexpr unsigned sparse_part = 4;
  return static_cast<std::uint16_t>((slab.slab_blocks + sparse_part - 1) / sparse_part);
}

// ---- remote frees ----

inline RemoteFrees& remote_frees_of(const Span* slab) noexcept {
  return page_map.remote_frees[first_page_of(slab)];
}

// A word of the slab's bits, one for each block, by number.
inline Atomic<std::uint64_t>& remote_word_of(const Span* slab, std::size_t index) noexcept {
  return remote_frees_of(slab).bits[index];
}

// ---- heaps ----

// How much of the tables these pages and heaps touch; heaps without the part that sampling needs.
constexpr std::size_t table_bytes(std::size_t pages, std::size_t heaps) noexcept {
  constexpr std::size_t of_page =
      sizeof(MapPage) + sizeof(Span) + sizeof(SlabUse) + sizeof(MoreFreeBits) + sizeof(RemoteFrees);
  return pages * of_page + heaps * heap_page_bytes;
}

inline std::uint32_t heap_number(PageMapEntry entry) noexcept {
  return (entry & ~arena_bit) >> heap_shift;
}

inline ThreadHeap* heap_of(PageMapEntry entry) noexcept {
  return page_map.heaps + heap_number(entry);
}

// Whether the entry is of a slab of this heap.
inline bool is_own(const ThreadHeap& heap, PageMapEntry entry) noexcept {
  return (entry ^ entry_of_heap(heap)) < heap_unit;
}

// Calls `visit(heap)` for each heap that has its number: it was created and not given back.
template <class Visit>
void for_each_heap(Visit visit) {
  const std::uint32_t count = page_map.heap_count.load(std::memory_order_relaxed);
  for (std::uint32_t number = 1; number <= count; ++number) {
    ThreadHeap& heap = page_map.heaps[number];
    if (entry_of_heap(heap) != 0) visit(heap);
  }
}

}  // namespace ts::engine
