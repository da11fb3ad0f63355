// What the core calls where a feature may have something to do. The core defines none of these and
// knows no feature: each feature defines its own, engine/hooks.cpp those that several features
// share, and core/no_features.cpp all of them for the core alone.
//
// "Free" means that the calling thread has no lock and holds no heap: the hook may allocate, take
// locks, and make system calls that other libraries see. Everything else must not.
#pragma once

#include <span>

#include "base/fault.h"
#include "core/current_heap.h"
#include "core/heap_hold.h"
#include "os/mutex.h"
#include "os/options.h"

namespace ts::engine::hooks {

// ---- heaps and threads ----

// A thread's heap was made; no thread uses it yet.
void heap_begins(ThreadHeap& heap) noexcept;
// A thread gets its heap, in malloc or free; or ends, with a heap, before that is abandoned, and
// after.
void thread_begins() noexcept;
void thread_is_ending() noexcept;
void thread_ended() noexcept;

// ---- what is due ----

// needs_attention(), in malloc. Free.
void attend() noexcept;
// The heap's slow path left work for its end (deferred_work.h). Free.
void attend_to_heap(ThreadHeap& heap) noexcept;
// The heap's owner looks at all classes, as every 72nd refill does.
void look_at_heap(ThreadHeap& heap) noexcept TS_REQUIRES(heap);

// ---- memory grows ----

// A heap found no touched memory for so many pages. Free, within a DeferredCall.
void heap_grows(ThreadHeap& heap, std::size_t pages) noexcept;
// So many pages are about to be touched for the first time, or perhaps not. Free.
void before_growth(std::size_t pages) noexcept;
// The page heap refused so many pages, for its hard limit, beside those that were touched.
void growth_refused(std::size_t touched_pages, std::size_t pages) noexcept;
// malloc is about to fail. Free.
void before_failure() noexcept;
// Memory was just committed: the page heap `grows`, under its lock; or a block has other pages.
void fresh_memory(std::byte* begin, std::size_t bytes, bool grows) noexcept;

// ---- small blocks ----

// Whether allocate_guarded() is to be asked.
inline bool has_guard() noexcept { return current_options.guard_sample != 0; }
// A block of the class, instead of a refill; null if not. Free.
void* allocate_guarded(unsigned size_class) noexcept;
// A block for the empty bin of the current heap, whose number has sampling_bit; null without
// memory. Free. To be called last: the caller's caller is in its return address.
void* allocate_sampled(std::size_t bytes, unsigned size_class) noexcept;
// A free of a block of a heap that is no thread's: false if it is no sample. Free.
bool release_sampled(void* p, PageMapEntry entry) noexcept;
// An address that is in no span meets free: whether a feature took it; or realloc and the like: how
// many bytes the program may use there, 0 if it is no block.
bool release_foreign(const void* p) noexcept;
std::size_t foreign_bytes(const void* p) noexcept;
// The beginning of the block in use that such an address lies in; null if it lies in none.
const void* foreign_block_around(const void* address) noexcept;
// Bytes of small blocks in use that are not the program's. A racy read.
std::size_t bytes_kept() noexcept;

// ---- large blocks ----

// A large block of fresh memory, which reads as zero, before it is used.
void fresh_large_block(const Span& span, std::size_t alignment_pages) noexcept;
// A large block begins in the scope of an arena, or in a thread without a heap.
void large_block_begins(Span& span) noexcept;
// The current heap's number has sampling_bit, and a large block began, or has another size.
// `caller` is the return address of malloc's caller, or null. Free.
void large_block_sampled(void* p, std::size_t bytes, const void* caller) noexcept;
// A large block ends that a hook marked (Span::used is not 0). Free.
void large_block_ends(Span& span) noexcept;
// A large block is about to be released, or moved: the last look at its memory.
void before_large_release(const Span& span) noexcept;

// ---- OS pages within slabs ----

// Purged blocks of one page are as other free ones from now on. The slab must have some.
void restore_blocks(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap);
// Purges the heap's oldest sparse slabs, so many at most, and takes each out of the queue; takes
// `lock`, if there is one, around each change. The calling thread owns the heap. Free.
void purge_sparse_slabs(ThreadHeap& heap, std::size_t at_most, Mutex* lock) noexcept;

// ---- trim: all free memory goes back ----

// Flushes heaps that are no thread's.
void flush_heaps() noexcept;
// Gives back OS pages within the slabs of the calling thread's heap. Free.
void purge_slabs(ThreadHeap& heap) noexcept;

// ---- forks ----

// Every mutex of core and features, in the order in which a thread takes them.
std::span<Mutex* const> mutexes_in_order() noexcept;
// In the child, under all of them: other threads are gone.
void child_begins() noexcept;
// In the child: a heap that is no thread's, in a change when the process forked, or not.
void arena_in_child(ThreadHeap& arena, bool is_in_change) noexcept;

// ---- invariants ----

// The features' own equations; `marked` large blocks have sample_mark (large_blocks.h).
Fault find_fault(std::uint64_t marked) noexcept;

}  // namespace ts::engine::hooks
