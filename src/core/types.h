// All structures of the engine, with their invariants, and its terms:
//
//   page               16 KiB of the engine's addresses (an OS page is the system's, 4 KiB or more)
//   span               a run of pages: a slab, a large block, or free memory
//   slab               a span cut into blocks of one size class, owned by one heap
//   carved             blocks of a slab, the first ones, that were taken at least once
//   heap               the memory of one thread: cache bins, slabs, batches
//   cache bin          a heap's LIFO list of free blocks of one class; malloc pops, free pushes
//   remote free        a free by a thread that does not own the slab: sets a bit, first in a batch;
//                      a block of whole cache lines may go into the thread's own bin before
//   pending            remote frees of a slab that were counted but not yet subtracted from `used`
//   collect            the owner takes the pending frees of its slabs
//   retire             return an empty slab to the page heap
//   reclaim            another thread retires slabs that remote frees emptied
//   abandoned heap     the heap of an ended thread, until a thread adopts it
//   page map           per page: the entry that free() reads, the span, the remote frees
//   page heap          all spans, under one lock; free spans are dirty (resident) or clean (zero),
//                      or in no list while they are purged
//   purge              return dirty memory to the operating system; it is then clean
//   sparse slab        at most a quarter of its blocks used, or half as many as at the last purge
//   purged block       a free block that begins in a purged OS page
//   scavenge           the owner purges, in rounds, OS pages within slabs that stay sparse
//   deferred work      is done at the end of a slow path, where the thread has no lock and no hold
//   bypassed bin       has capacity 0, so that frees go into their slabs: after a burst of frees,
//                      until the next refill; or for some refills, so that each malloc can scavenge
//   background thread  the library's own thread, which purges idle memory
//   key                the second word of free blocks: of all in bins, of others perhaps
//                      (block_list.h)
//   arena              a heap of the program's own, whose blocks can be freed all at once
//   scope              while a thread is in an arena's scope, its current heap is the arena's
//   sample             a block whose call stack is kept, for the heap profile (sampling.h)
//   spare list         the blocks of a full cache bin, put aside in a burst of frees
//   sampling bin       a second cache bin of each class; free pushes into it while a heap samples
//
// Each field names the threads that may access it:
//   owner    the thread whose heap it is
//   holder   the owner or a reclaimer, whichever holds the heap (heap_hold.h)
//   locked   a thread with the lock of the page heap
//   any      every thread: atomic; the code that uses it says why that is correct
//   const    not changed once another thread can see it
//
// The engine is at rest while no thread is inside it; invariants "at rest" hold then. Those of one
// heap also hold whenever its own thread is outside, except for frees that other threads are
// sending. invariants.cpp checks them all. A call may never return: because of a longjmp out of a
// signal handler, cancellation, or because the child of a fork lacks the thread. It may leave one
// list one block longer or shorter than its count, and free blocks of one slab that count as used.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/atomic.h"
#include "core/block_list.h"
#include "core/map_entry.h"
#include "core/size_classes.h"

namespace ts::engine {

inline constexpr unsigned page_shift = 14;
static_assert(page_bytes == std::size_t{1} << page_shift);

constexpr std::size_t pages_for(std::size_t bytes) noexcept {
  return (bytes + page_bytes - 1) / page_bytes;
}

inline constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
inline constexpr std::size_t pages_per_huge_page = huge_page_bytes / page_bytes;

// ---- cache bins ----

// At rest: the list has capacity - capacity_left blocks, all of the bin's class, each the beginning
// of a block that counts as used.
//
// The capacity is 0 until the first refill, after many frees in a row (bypass_bin), and while bins
// are bypassed: a thread that only frees keeps nothing. It is lowered when many slabs of the class
// become sparse, since each block of a bin may be the last one of its slab; refills raise it again
// (cache_bins.h). A bin without capacity is empty, and bypassed unless the heap has sampling bins:
// then no bin of the heap has a block of the class, and none takes one.
struct CacheBin {
  Plain<Block*> head = nullptr;
  std::int32_t capacity_left = 0;
  Plain<std::uint32_t> reciprocal = 0;  // const: the class's, kept here for free()
};

// The head of a bypassed bin. Not a block, and below PageMap::lowest_block, so malloc takes it for
// the end of a list.
inline Block* bypassed_bin() noexcept { return reinterpret_cast<Block*>(1); }

// The first block of a bin; null if it is empty.
inline Block* first_block(const CacheBin& bin) noexcept {
  Block* const head = bin.head;
  return head != bypassed_bin() ? head : nullptr;
}

static_assert(sizeof(CacheBin) == std::size_t{1} << class_shift);

// ---- spans ----

enum class SpanState : std::uint8_t {
  in_use,  // the last page of a span in use; or a span that changes its state
  free,    // first and last page of a free span
  slab,
  large,
};

// For SlabUse::fast_free_threshold: more blocks than any slab has.
inline constexpr std::int16_t unlisted = 0x7fff;
static_assert(max_slab_blocks < unlisted);

// The descriptor of a span, at its first page; neither malloc nor free reads it on the fast path.
// Invariants:
//   all      the spans tile the pages in use: each begins where the one before it ends
//   free     first and last page agree on state and length; two free neighbours differ in `zeroed`
//   slab     at rest: used + the blocks that are free by SlabUse == slab_blocks + early, where
//            `early` frees had their bits collected before their count: pending less the bits that
//            are set; 0 for most slabs;
//            no block from `carved` on has ever been taken: it is free;
//            purged_blocks is the number of carved blocks that begin in purged OS pages: they are
//            free;
//            it is listed if and only if a block is free; fast_free_threshold is `unlisted` if and
//            only if it is not listed;
//            while more than fast_free_threshold blocks are used, a free only sets its bit and
//            lowers `used`, without a hold; otherwise finish_release() follows. The threshold is
//            not below sparse_limit while `used` is above that, and for a long slab not below the
//            number of its blocks in bins when a free last reached it (move_fast_free_threshold);
//            used counts the program's blocks, those in cache bins and in batches, pending ones,
//            and free ones while OS pages under them are purged (slab_purge.h);
//            without keyless_bit, each free carved block has its key (block_list.h);
//            has_keys, if any free block may have one;
//            slab_begin of each of its pages is the low half of its address
//   large    usable_pages <= pages; the pages after usable_pages, its tail, were never touched;
//            slab_begin of the first page is `pages`, with has_tail if there is a tail; then that
//            of the second page is usable_pages; next and previous link the large blocks of an
//            arena; sparse_limit is the block's colour (colours.h)
struct alignas(64) Span {
  Plain<const void*> purger = nullptr;  // locked; the thread that purges it, of a chosen span
  // slab: holder, in the list of its class; free: locked; large: arenas_lock, in its arena's list
  Plain<Span*> next = nullptr;
  Plain<Span*> previous = nullptr;  // likewise
  // large: arenas_lock, others read: its arena's number, or 0, or sample_mark (large_blocks.h),
  // changed by the program's call
  Atomic<std::uint32_t> arena{0};
  Plain<std::uint32_t> pages = 0;  // locked; const while in use, except of a large block
  // large: the program, by realloc; others read. locked: of a span chosen for a purge, how many of
  // its pages are dirty; of a free one, `pages` once its part of the tables was discarded, else 0
  Atomic<std::uint32_t> usable_pages{0};
  // holder: the heap's queue of sparse slabs (sparse_slabs.h), by page; an arena's has all slabs
  Plain<std::uint32_t> next_sparse = 0;
  Plain<std::uint32_t> previous_sparse = 0;
  Plain<std::uint16_t> sparse_round = 0;   // holder: the round in which it became sparse
  Plain<std::uint16_t> carved = 0;         // holder
  Plain<std::uint16_t> purged_blocks = 0;  // holder
  Plain<std::uint16_t> slab_blocks = 0;    // locked; const while in use: capacity of the slab
  Plain<std::uint16_t> sparse_limit = 0;   // holder: sparse up to this many used; large: see above
  Plain<std::uint8_t> size_class = 0;      // locked; const while in use
  Plain<SpanState> state = SpanState::in_use;  // locked; const while in use
  Plain<bool> zeroed = false;                  // locked: reads as zero throughout
  Plain<std::uint8_t> purged = 0;  // holder, for each page of a slab: a bit for each purged OS page
  Plain<bool> has_keys = false;    // holder: see above
};
static_assert(sizeof(Span) == 64);

// Remote frees of a slab, apart from its descriptor, so that other threads do not disturb the
// owner's cache line. All zero while there are none. One per page; a slab uses its first page's.
//
// Invariant: a slab is on its owner's `ready` stack if and only if pending is positive, except
// between a sender's addition and its push. A sender sets bits before it counts them, and the owner
// may collect them in between. So at rest the bits that are set are at most as many as pending, and
// each belongs to a carved block that counts as used.
struct alignas(64) RemoteFrees {
  Plain<Span*> next_ready = nullptr;    // the thread that made `pending` positive, then holder
  Atomic<std::uint32_t> pending{0};     // any: frees not yet subtracted from `used`
  Atomic<std::uint64_t> bits[22] = {};  // any: one for each block, by number
};
static_assert(sizeof(RemoteFrees) == 192);
static_assert(std::size(RemoteFrees{}.bits) * 64 >= max_slab_blocks);

// What a free changes in its slab. One structure per page; a longer slab uses its first page's. All
// of it is meaningless for pages in no slab. holder, others read
struct alignas(64) SlabUse {
  // One for each block, by number: 1 if it is free and in no cache bin. relaxed throughout
  Atomic<std::uint64_t> free_bits[7] = {};
  Atomic<std::uint32_t> used{0};
  Plain<std::int16_t> fast_free_threshold = unlisted;
};
static_assert(sizeof(SlabUse) == 64);

// The bits of slabs with more blocks, which are of one page.
struct MoreFreeBits {
  static constexpr std::size_t first_word = std::size(SlabUse{}.free_bits);
  Atomic<std::uint64_t> words[(max_slab_blocks + 63) / 64 - first_word] = {};
};

// ---- heaps ----

// Remote frees that the thread has not sent yet, of blocks whose bits share one word of one slab.
// Invariant: count bits are set, fewer than carve_blocks of the class; all belong to one other
// heap's slab.
struct alignas(32) RemoteBatch {
  Plain<Span*> slab = nullptr;
  Plain<std::uint64_t> bits = 0;
  Plain<std::uint32_t> word = 0;
  Plain<std::uint32_t> count = 0;
};

// A slab's number determines its batch: a thread that alternates between blocks of several slabs
// fills several batches.
inline constexpr std::size_t batch_count = 32;

// Which thread may currently change a heap's slabs and their lists (heap_hold.h).
enum class Holder : std::uint32_t { none, owner, reclaimer };

struct HeapFront;
struct ThreadHeap;

// A heap that never samples touches only the first page of its structure.
inline constexpr std::size_t heap_page_bytes = 4096;

// A scope that a thread is in: what to return to when it leaves.
struct ScopeFrame {
  Plain<ScopeFrame*> outer = nullptr;
  Plain<HeapFront*> heap_outside = nullptr;
  Plain<std::uint32_t> repeats = 0;  // how often the scope was entered again and not left
};

// After this many refills, a heap checks all its classes, including those that the thread does not
// use.
inline constexpr std::uint8_t refills_per_look = 72;

// The part of a heap that malloc and free read before they know whether the thread has one.
struct alignas(64) HeapFront {
  // Its number as in map entries, const; and sampling_bit, which any thread may set and clear
  // (sampling.h). relaxed: either value is right for its thread at any time.
  Atomic<PageMapEntry> self{no_owner};
  Plain<bool> keeps_bins = false;       // abandoned_lock: abandoned with blocks in its bins
  Plain<bool> from_fork = false;        // abandoned_lock: by a fork, which may have interrupted it
  Plain<bool> recounts = false;         // abandoned_lock: its bins have to be recounted
  bool has_wide_bins = false;           // const: see max_heaps_with_wide_bins
  Atomic<bool> busy{false};             // owner: is changing a batch; a fork skips such a heap
  std::uint8_t refills_since_look = 0;  // owner: at most refills_per_look
  bool has_sampling_bins = false;       // owner: they may hold blocks
  bool is_to_scavenge = false;          // owner: at the end of its slow path (deferred_work.h)
  Atomic<Holder> holder{};              // any: which thread holds the heap
  Plain<ThreadHeap*> next_abandoned = nullptr;  // abandoned_lock; of free arenas, arenas_lock
  CacheBin bins[class_count];                   // owner
};

// What precedes HeapFront in a heap, which begins at a page. A program whose blocks of some
// kilobytes make it touch the first lines of many pages evicts the lines that share their cache
// sets. HeapFront, which every malloc and free reads, must therefore not be at the beginning of a
// page.
struct alignas(64) HeapBeginning {
  Plain<Span*> partial[class_count] = {};  // holder: slabs with free blocks, by class
  RemoteBatch batches[batch_count];        // owner
};

// The lists that a heap has put aside (spare_lists.h). Invariants at rest: of the first
// spare_list_count lists, spare_lists_of[c] are of class c; their bin has its largest capacity, and
// each has as many blocks; none of class c comes after last_of[c]. What is true of blocks in bins
// is true of theirs.
inline constexpr std::uint32_t max_spare_lists = 1600;
struct SpareLists {
  Plain<Block*> first[max_spare_lists];
  std::uint8_t size_class[max_spare_lists];
  std::uint8_t age[max_spare_lists];
  std::uint16_t last_of[class_count];
};

// Invariants at rest: slabs[c] is the number of slabs whose entry has this heap and class c. The
// list partial[c] links those of them that are listed, in both directions.
struct TS_CAPABILITY("heap") ThreadHeap : HeapBeginning, HeapFront {
  std::uint16_t capacities[class_count] = {};  // owner: of the bins
  // owner: how many frees in a row found the bin full with first_when_full at its head (is_burst)
  std::uint8_t frees_when_full[class_count] = {};
  Plain<std::uint32_t> kept_pages = 0;  // abandoned_lock: of its slabs, when keeps_bins was set
  // holder: the queue of sparse slabs (sparse_slabs.h), and its rounds (scavenge.h). An arena's
  // queue has all its slabs, and no rounds.
  Plain<std::uint32_t> first_sparse = 0;
  Plain<std::uint32_t> last_sparse = 0;
  Plain<std::uint32_t> sparse_pages = 0;
  Plain<std::uint16_t> round = 0;
  Plain<std::uint16_t> bypassed_refills = 0;        // this many refills bypass the bins
  Plain<std::uint32_t> slabs[class_count] = {};     // holder: how many the heap has, by class
  std::uint16_t first_when_full[class_count] = {};  // low 16 bits of the head's address / 16
  // owner: slabs that became sparse since the bin was opened wide
  std::uint16_t sparse_slabs[class_count] = {};
  Plain<std::uint64_t> round_began = 0;       // nanoseconds
  Plain<std::uint64_t> scavenged_at = 0;      // likewise
  alignas(64) Atomic<Span*> ready{nullptr};   // any: slabs with pending frees, a stack
  Atomic<std::int32_t> reclaimable_pages{0};  // any: a hint, of slabs worth a reclaim
  Atomic<bool> is_abandoned{false};           // abandoned_lock; a hint for others
  // For arenas; see arena_use.h
  Atomic<std::uintptr_t> user{0};           // any: a heap's address, or a mark; 0: not an arena
  Atomic<std::uintptr_t> idle_mark{0};      // user, others read: the value of `user` while unused
  ScopeFrame scope;                         // user; its `repeats` is 0 while there is none
  Plain<Span*> large_blocks = nullptr;      // arenas_lock: a list
  Atomic<std::uint32_t> deferred_calls{0};  // owner: calls of deferred_work.h in progress
  std::uint32_t sampling_depth = 0;         // owner: a sample is being taken
  double until_large_sample = 0;            // owner: in mean distances; 0: not drawn
  std::uint64_t random = 0;                 // owner
  // holder, but the owner reads the count without a hold (is_burst): see SpareLists
  Atomic<std::uint16_t> spare_list_count{0};
  std::uint16_t more_spare_lists = 0;      // that the heap may have, since it ran out of them
  std::uint16_t bursts_without_lists = 0;  // how many more bursts use no lists (do_without_lists)
  std::uint8_t class_without_lists = 0;    // the class that ran out of lists; its bursts weigh more
  std::uint16_t spare_lists_of[class_count] = {};

  // ---- untouched while the heap has never sampled: its second OS page (has_sampling_bins) ----

  // owner: located sampling_bit bytes after `bins`. At rest: the list has sampling_capacities -
  // capacity_left blocks.
  alignas(heap_page_bytes) std::byte before_bins[sizeof(HeapBeginning) + offsetof(HeapFront, bins)];
  CacheBin sampling_bins[class_count];
  std::uint16_t sampling_capacities[class_count] = {};  // owner
  std::uint32_t until_sample[class_count] = {};         // owner: counts mallocs; 0: not drawn
  std::uint64_t drawn_interval = 0;                     // owner: the interval of until_sample

  // ---- untouched while the heap has put nothing aside: the other OS pages ----

  alignas(heap_page_bytes) SpareLists spare_lists;  // holder
};
static_assert(sizeof(ThreadHeap) == 6 * heap_page_bytes);

// The heap's number as map entries have it.
inline PageMapEntry entry_of_heap(const HeapFront& heap) noexcept {
  return heap.self.load(std::memory_order_relaxed) & ~sampling_bit;
}

inline bool is_arena(const ThreadHeap& heap) noexcept { return entry_of_heap(heap) >= arena_bit; }
// The lowest two bits of ThreadHeap::user while no thread uses the arena.
inline constexpr std::uintptr_t idle_bits = 2;
inline bool is_idle_mark(std::uintptr_t user) noexcept { return (user & 3) == idle_bits; }

// relaxed: written under a hold; its owner also reads it without one, where either value is right.
inline std::uint32_t spare_list_count(const ThreadHeap& heap) noexcept {
  return heap.spare_list_count.load(std::memory_order_relaxed);
}

inline bool is_abandoned(const ThreadHeap& heap) noexcept {
  return heap.is_abandoned.load(std::memory_order_relaxed);
}

// The first heaps of a process have larger bins for blocks of some kilobytes: a few threads never
// cache much.
inline constexpr std::uint32_t max_heaps_with_wide_bins = 16;

// A list with more blocks is damaged. (A sampling bin may have more than its capacity, but not more
// than this.)
inline constexpr std::uint32_t max_in_bin = 2 * max_wide_bin_blocks;

}  // namespace ts::engine
