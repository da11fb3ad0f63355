// The engine's memory and every structure in it. One reservation of address space, of which a prefix
// of each part is in use:
//
//   | map: 4 B a granule | spans: 64 B a granule | remote bits: 1 a 16 B | heaps: 2 KiB | granules: 16 KiB |
//
// A granule belongs to a span: a slab of blocks of one class, a large block, or free memory. What
// free() has to know of an address is in the map, one load away and never in the memory that the
// program uses: whose slab it is, of which class, and how many granules back it begins. Everything
// else about a span is in its descriptor, which neither malloc nor free touches on its fast path.
//
// Whose word is whose: each field says who may touch it. "owner" is the thread whose heap the slab
// belongs to, "pages" is the lock of the page heap, "any" is atomic and argued where it is used.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "engine/size_classes.h"

namespace ts::engine {

// A free block of a slab; the link is all that it holds.
struct Block {
  Block* next;
};

// ---- the map ----

// An entry: number of the owning heap (20 bits) | large (1) | granules back to the slab's first (4)
// | size class (7). 0 is a granule that begins no block; heaps count from 1.
using Entry = std::uint32_t;
inline constexpr unsigned heap_shift = 12;
inline constexpr Entry heap_unit = Entry{1} << heap_shift;
inline constexpr Entry large_entry = Entry{1} << 11;
inline constexpr unsigned back_shift = 7;
inline constexpr Entry back_mask = 0xf;
inline constexpr Entry class_mask = 0x7f;
static_assert(max_slab_granules <= back_mask + 1);

// ---- spans ----

enum class SpanState : std::uint8_t {
  in_use,  // the last granule of a span in use; or between two states
  free,    // first and last granule of a free span
  slab,
  large,
};

struct alignas(64) Span {
  Block* blocks = nullptr;              // owner: free blocks that are in no bin
  Span* next = nullptr;                 // slab: owner, in the list of its class; free: pages
  Span* previous = nullptr;             // likewise
  Span* next_ready = nullptr;           // who made `pending` positive, then the owner
  std::atomic<std::uint32_t> pending;   // any: remote frees that the owner has not yet counted
  std::atomic<std::uint32_t> used;      // owner; others read: blocks in bins or with the program
  std::uint32_t granules = 0;           // pages; const while in use, but for a large block's owner
  std::uint32_t carved = 0;             // owner: blocks that have ever been linked
  std::uint32_t free_blocks = 0;        // owner: length of `blocks`
  std::uint8_t size_class = 0;          // const while in use
  SpanState state = SpanState::in_use;  // pages; const while in use
  bool listed = false;                  // owner: in the list of its class
  bool zeroed = false;                  // pages: reads as zero throughout
};
static_assert(sizeof(Span) == 64);

// ---- heaps ----

// A thread's own stock of one class: a LIFO list, so that a block comes back while its lines are
// still in the cache.
struct Bin {
  Block* head = nullptr;
  std::uint32_t room = 0;  // how many more it may hold
};

struct alignas(64) ThreadHeap {
  Entry self = 0;                     // const: its number as the map has it
  bool is_orphan = false;             // orphans' lock
  std::atomic<bool> busy{false};      // owner: in a slow path; a fork leaves such a heap alone
  ThreadHeap* next_orphan = nullptr;  // orphans' lock
  std::atomic<Span*> ready{nullptr};  // any: slabs with pending frees, a stack
  Bin bins[class_count];              // owner
  Span* partial[class_count] = {};    // owner: slabs with blocks to give, by class
};
inline constexpr std::size_t heap_stride = 2048;
static_assert(sizeof(ThreadHeap) <= heap_stride);

// ---- the reservation ----

inline constexpr unsigned granule_shift = 14;
static_assert(granule_bytes == std::size_t{1} << granule_shift);
inline constexpr std::size_t remote_words_per_granule = granule_bytes / min_alignment / 64;

// Where the parts begin. All const once granule_count is positive.
struct Layout {
  std::uintptr_t base = 0;                      // of the first granule
  std::atomic<std::uint32_t> granule_count{0};  // any: granules in use of the reservation
  std::atomic<Entry>* map = nullptr;
  Span* spans = nullptr;
  std::atomic<std::uint64_t>* remote_bits = nullptr;
  std::byte* heaps = nullptr;
};
inline constinit Layout layout;

inline std::byte* memory_of(const Span* span) noexcept {
  return reinterpret_cast<std::byte*>(layout.base) +
         (static_cast<std::size_t>(span - layout.spans) << granule_shift);
}

inline std::size_t granule_of(const void* p) noexcept {
  return (address_of(p) - layout.base) >> granule_shift;
}

// The entry of the granule that `p` lies in; 0 if it is none of ours.
inline Entry entry_of(const void* p) noexcept {
  const std::size_t granule = granule_of(p);
  // relaxed: whoever has a block learnt its address from the thread that got it, and with the
  // address all that was stored before
  if (granule >= layout.granule_count.load(std::memory_order_relaxed)) [[unlikely]]
    return 0;
  return layout.map[granule].load(std::memory_order_relaxed);
}

inline Span* slab_of(const void* p, Entry entry) noexcept {
  return layout.spans + (granule_of(p) - (entry >> back_shift & back_mask));
}

inline ThreadHeap* heap_of(Entry entry) noexcept {
  return reinterpret_cast<ThreadHeap*>(layout.heaps + (entry >> heap_shift) * heap_stride);
}

}  // namespace ts::engine
