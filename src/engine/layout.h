// The engine's memory and every structure in it. One range of addresses (room.h), of which a prefix
// of each part is in use:
//
//   | map: 4 B a granule | spans: 64 B a granule | remote frees: 192 B a granule | heaps: 3.1 KiB | granules: 16 KiB |
//
// A granule belongs to a span: a slab of blocks of one class, a large block, or free memory. What
// free() has to know of an address is in the map, one load away and never in the memory that the
// program uses: whose slab it is, and of which class. Everything else about a span is in its
// descriptor, which neither malloc nor free touches on its fast path.
//
// Whose word is whose: each field says who may touch it. "owner" is the thread whose heap the slab
// belongs to, "holder" that thread or one that sweeps the heap, whichever holds it (sweep.h), "pages"
// is the lock of the page heap, "any" is atomic and argued where it is used.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "engine/size_classes.h"

namespace ts::engine {

inline constexpr unsigned granule_shift = 14;
static_assert(granule_bytes == std::size_t{1} << granule_shift);

constexpr std::size_t granules_for(std::size_t bytes) noexcept {
  return (bytes + granule_bytes - 1) / granule_bytes;
}

// A free block of a slab; the link is all that it holds.
struct Block {
  Block* next;
};

// release: the child of a fork may find a list of a thread that it does not have cut off between
// any two stores (base/busy_mark.h), and then the block is on it with its link, or not at all.
inline void put_before(Block*& list, Block* block, Block* first) noexcept {
  block->next = first;
  std::atomic_ref<Block*>{list}.store(block, std::memory_order_release);
}
inline void put_before(Block*& list, Block* block) noexcept { put_before(list, block, list); }

// A thread's own stock of one class: a LIFO list, so that a block comes back while its lines are
// still in the cache.
struct Bin {
  Block* head = nullptr;
  std::int32_t room = 0;  // how many more it may hold; negative if it got too many
};

// ---- the map ----

// An entry: number of the owning heap (20 bits) | large (1) | size class (7) | 0 (4). 0 is a
// granule that begins no block; heaps count from 1. The class stands where it is the offset of the
// class's bin, so that free() need not compute one.
using Entry = std::uint32_t;
inline constexpr unsigned heap_shift = 12;
inline constexpr Entry heap_unit = Entry{1} << heap_shift;
inline constexpr Entry large_entry = Entry{1} << 11;
inline constexpr unsigned class_shift = 4;
inline constexpr Entry class_mask = 0x7f << class_shift;
static_assert(sizeof(Bin) == std::size_t{1} << class_shift);

inline const SizeClass& size_class_of(Entry entry) noexcept {
  return size_classes[(entry & class_mask) >> class_shift];
}

// ---- spans ----

enum class SpanState : std::uint8_t {
  in_use,  // the last granule of a span in use; or between two states
  free,    // first and last granule of a free span
  slab,
  large,
};

struct alignas(64) Span {
  Block* blocks = nullptr;              // holder: free blocks that are in no bin
  Span* next = nullptr;                 // slab: holder, in the list of its class; free: pages
  Span* previous = nullptr;             // likewise
  std::atomic<std::uint32_t> used;      // slab: holder, others read: blocks that are not home;
                                        // large: pages, the program reads: granules it may use
  std::uint32_t granules = 0;           // pages; const while in use, but for a large block's owner
  std::uint32_t carved = 0;             // holder: blocks that have ever been linked
  std::uint32_t free_blocks = 0;        // holder: length of `blocks`
  std::uint32_t slab_blocks = 0;        // pages; const while in use: how many the slab has room for
  std::uint32_t back = 0;               // granules back to the slab's first; const while in use
  std::uint8_t size_class = 0;          // pages; const while in use
  SpanState state = SpanState::in_use;  // pages; const while in use
  bool listed = false;                  // holder: in the list of its class
  bool zeroed = false;                  // pages: reads as zero throughout
};
static_assert(sizeof(Span) == 64);

// What other threads have to say of a slab, apart from its descriptor, so that they do not disturb
// the owner; all zero while there is nothing. One per granule; the words of a longer slab go on
// over the structures of its other granules.
struct alignas(64) RemoteFrees {
  Span* next_ready = nullptr;                 // who made `pending` positive, then the holder
  std::atomic<std::uint32_t> pending{0};      // any: frees that are not yet taken from `used`
  std::atomic<std::uint64_t> words[22] = {};  // any: a bit for each block, by number
};
static_assert(sizeof(RemoteFrees) == 192);

// ---- heaps ----

// Blocks of one slab that the thread freed and has not sent home yet: bits of one word.
struct alignas(32) RemoteBatch {
  Span* slab = nullptr;
  std::uint64_t bits = 0;
  std::uint32_t word = 0;
  std::uint32_t count = 0;
};

// Each in a place of its own, found by the slab's number: a thread that frees blocks of several
// slabs in turn fills several batches.
inline constexpr std::size_t batch_count = 32;

// A thread keeps some spans of each of these lengths, the shortest large blocks, where the lock of
// the page heap would cost most.
inline constexpr std::size_t min_kept_granules = granules_for(max_small_bytes + 1);
inline constexpr std::size_t kept_lengths = 2;

struct KeptSpans {
  Span* head = nullptr;
  std::uint32_t count = 0;
};

inline constexpr Entry nobody = ~Entry{0};

struct ThreadHeap;

// Who changes a heap's slabs and their lists at the moment (sweep.h).
enum class Holder : std::uint8_t { none, owner, sweeper };

// As much of a heap as malloc and free look at before they know whether the thread has one.
struct HeapFront {
  Entry self = nobody;                 // const: its number as the map has it
  bool is_orphan = false;              // orphans' lock
  bool is_stocked = false;             // orphans' lock: an orphan whose bins hold blocks
  bool is_inherited = false;           // orphans' lock: its thread did not end, but was not forked
  bool has_wide_bins = false;          // const: it is one of the first
  std::atomic<bool> busy{false};       // owner: changes a batch; a fork leaves such a heap alone
  std::atomic<Holder> holder{};        // any: who holds the heap
  std::uint8_t checked_class = 0;      // owner: whose bin was looked at last (bins.cpp)
  std::uint32_t stocked_granules = 0;  // orphans' lock: how many its slabs had when it was stocked
  ThreadHeap* next_orphan = nullptr;   // orphans' lock
  Bin bins[class_count];               // owner
};

struct alignas(64) ThreadHeap : HeapFront {
  Span* partial[class_count] = {};                  // holder: slabs with blocks to give, by class
  std::uint32_t slabs[class_count] = {};            // holder: how many the heap has, by class
  RemoteBatch batches[batch_count];                 // owner
  KeptSpans kept[kept_lengths];                     // owner: free large spans, by length
  alignas(64) std::atomic<Span*> ready{nullptr};    // any: slabs with pending frees, a stack
  std::atomic<std::int32_t> sweepable_granules{0};  // any: roughly, of slabs that wait to be swept
};
static_assert(sizeof(ThreadHeap) == 3200);

// The first heaps of a process have more room for blocks of some kilobytes: what a few threads put
// aside is little, whatever they do.
inline constexpr std::uint32_t most_heaps_with_wide_bins = 16;

inline std::uint32_t bin_blocks(const HeapFront& heap, const SizeClass& c) noexcept {
  return heap.has_wide_bins ? c.wide_bin_blocks : c.bin_blocks;
}

// A list of more is damaged: a bin is full, or has what one slab had.
inline constexpr std::uint32_t most_in_bin = max_slab_blocks + max_wide_bin_blocks;

// ---- the range of addresses ----

// Where the parts begin. All const once granule_count is positive.
struct Layout {
  std::uintptr_t base = 0;                    // of the first granule
  std::atomic<std::size_t> granule_count{0};  // any: granules in use
  std::atomic<std::uint32_t> heap_count{0};   // any, relaxed: heaps that exist
  std::atomic<Entry>* map = nullptr;
  Span* spans = nullptr;
  RemoteFrees* remote_frees = nullptr;
  ThreadHeap* heaps = nullptr;
};
inline constinit Layout layout;

// No block lies below it, and null does, always: malloc looks for the end of a list by it, so that
// most of what a program may have written over a link is taken for an end as well, and looked into.
inline constinit std::atomic<std::size_t> lowest_block{1};

inline std::size_t number_of(const Span* span) noexcept {
  return static_cast<std::size_t>(span - layout.spans);
}

inline std::byte* memory_of(const Span* span) noexcept {
  return reinterpret_cast<std::byte*>(layout.base) + (number_of(span) << granule_shift);
}

inline std::size_t granule_of(const void* p) noexcept {
  return (address_of(p) - layout.base) >> granule_shift;
}

// The entry of the granule that `p` lies in; 0 if it is none of ours.
inline Entry entry_of(const void* p) noexcept {
  const std::size_t granule = granule_of(p);
  // relaxed: whoever has a block learnt its address from the thread that got it, and with the
  // address all that was stored before
  if (!is_below(granule, layout.granule_count)) [[unlikely]]
    return 0;
  return layout.map[granule].load(std::memory_order_relaxed);
}

// The slab that a block of the calling thread's own heap belongs to.
inline Span* slab_of(const void* p) noexcept {
  Span* const span = layout.spans + granule_of(p);
  return span - span->back;
}

// The same for any block. The owner writes to the descriptor all the time; another thread does not
// look into it where it need not.
inline Span* slab_of(const void* p, const SizeClass& c) noexcept {
  return c.slab_granules == 1 ? layout.spans + granule_of(p) : slab_of(p);
}

inline RemoteFrees& remote_frees_of(const Span* slab) noexcept {
  return layout.remote_frees[number_of(slab)];
}

// A bit for each of the slab's blocks, by number: more words than one structure has, if it is long.
inline std::atomic<std::uint64_t>& remote_word_of(const Span* slab, std::size_t index) noexcept {
  auto* const begin = reinterpret_cast<std::byte*>(&remote_frees_of(slab));
  return reinterpret_cast<std::atomic<std::uint64_t>*>(begin + offsetof(RemoteFrees, words))[index];
}

inline ThreadHeap* heap_of(Entry entry) noexcept { return layout.heaps + (entry >> heap_shift); }

// Pushes slabs of the heap whose counts are positive, linked by next_ready from `first` to the one of
// which `last` is.
inline void push_ready(ThreadHeap& heap, Span* first, RemoteFrees& last) noexcept {
  Span* head = heap.ready.load(std::memory_order_relaxed);
  do {
    last.next_ready = head;
    // release: the links (pairs with the exchange of who takes the stack)
  } while (!heap.ready.compare_exchange_weak(head, first, std::memory_order_release,
                                             std::memory_order_relaxed));
}

}  // namespace ts::engine
