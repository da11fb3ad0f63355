// What the core calls where a feature may have work to do. The core implements none of these and
// knows no feature: each feature implements its own, engine/hooks.cpp those that several features
// share, and core/no_features.cpp all of them for the core without features.
//
// "Free" means that the calling thread has no lock and holds no heap: the hook may allocate, take
// locks, and make system calls that other libraries see. All other hooks must not.
#pragma once

#include <span>

#include "base/fault.h"
#include "core/current_heap.h"
#include "core/heap_hold.h"
#include "os/mutex.h"
#include "os/options.h"

namespace ts::engine::hooks {

// ---- heaps and threads ----

// A thread's heap was created; no thread uses it yet.
void heap_begins(ThreadHeap& heap) noexcept;
// A thread gets its heap, in malloc or free. Or a thread with a heap ends: before the heap is
// abandoned, and after.
void thread_begins() noexcept;
void thread_is_ending() noexcept;
void thread_ended() noexcept;

// `pages` of slabs whose heap has no thread have pending frees, which no owner will collect.
void frees_stay_uncollected(std::uint32_t pages) noexcept;

// ---- what is due ----

// needs_attention() was true in malloc. Free.
void attend() noexcept;
// The heap's slow path left deferred work (deferred_work.h). Free.
void attend_to_heap(ThreadHeap& heap) noexcept;
// The heap's owner checks all classes, as every 72nd refill does.
void look_at_heap(ThreadHeap& heap) noexcept TS_REQUIRES(heap);

// ---- memory ----

// The heap found no touched memory for a request of `pages`. Free, within a DeferredCall.
void heap_grows(ThreadHeap& heap, std::size_t pages) noexcept;
// `pages` may be about to be touched for the first time. Free.
void before_growth(std::size_t pages) noexcept;
// More memory is dirty than PageHeap::watch_dirty_memory() allowed. Under the page heap's lock.
void dirty_memory_grew() noexcept;
// The page heap refused `pages` because of its hard limit; `touched_pages` were touched before.
void growth_refused(std::size_t touched_pages, std::size_t pages) noexcept;
// malloc is about to fail. Free.
void before_failure() noexcept;
// Memory was just committed: because the page heap `grows`, under its lock; or because a block's
// pages were replaced.
void fresh_memory(std::byte* begin, std::size_t bytes, bool grows) noexcept;

// ---- small blocks ----

// Whether to call allocate_guarded().
inline bool has_guard() noexcept { return current_options.guard_sample != 0; }
// A guarded block of the class, instead of a refill, or null. Free.
void* allocate_guarded(unsigned size_class) noexcept;
// A block for the empty bin of the current heap, whose number has sampling_bit; null if there is no
// memory. Free. Must be a tail call: it takes the caller's caller from its return address.
void* allocate_sampled(std::size_t bytes, unsigned size_class) noexcept;
// A block of a heap that belongs to no thread is freed: false if it is not a sample. Free.
bool release_sampled(void* p, PageMapEntry entry) noexcept;
// An address in no span reaches free: returns whether a feature handled it. For realloc and the
// like: how many bytes the program may use there, 0 if it is not a block.
bool release_foreign(const void* p) noexcept;
std::size_t foreign_bytes(const void* p) noexcept;
// The beginning of the block in use that contains such an address, or null.
const void* foreign_block_around(const void* address) noexcept;
// Bytes of small blocks in use that are not the program's. A racy read.
std::size_t bytes_kept() noexcept;

// ---- large blocks ----

// A large block of fresh memory, which reads as zero, is about to be used.
void fresh_large_block(const Span& span, std::size_t alignment_pages) noexcept;
// A large block is allocated in the scope of an arena, or by a thread without a heap.
void large_block_begins(Span& span) noexcept;
// A large block was allocated or resized while the current heap's number has sampling_bit. `caller`
// is the return address of malloc's caller, or null. Free.
void large_block_sampled(void* p, std::size_t bytes, const void* caller) noexcept;
// A large block that a hook marked (Span::arena is not 0) is freed. Free.
void large_block_ends(Span& span) noexcept;
// A large block is about to be released or moved: the last chance to read its memory.
void before_large_release(const Span& span) noexcept;

// ---- OS pages within slabs ----

// Makes the purged blocks of one page ordinary free blocks again. The slab must have some.
void restore_blocks(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap);
// Purges the heap's oldest sparse slabs, at most `at_most`, and takes each out of the queue; takes
// `lock`, if given, around each change. The calling thread owns the heap. Free.
void purge_sparse_slabs(ThreadHeap& heap, std::size_t at_most, Mutex* lock) noexcept;

// ---- trim: all free memory is returned ----

// Flushes heaps that belong to no thread.
void flush_heaps() noexcept;
// Purges OS pages within the slabs of the calling thread's heap. Free.
void purge_slabs(ThreadHeap& heap) noexcept;

// ---- forks ----

// Every mutex of core and features, in lock order.
std::span<Mutex* const> mutexes_in_order() noexcept;
// In the child of a fork, with all of them locked: the other threads no longer exist.
void child_begins() noexcept;
// In the child of a fork, for each heap that belongs to no thread; `is_in_change` if the fork
// interrupted a change.
void arena_in_child(ThreadHeap& arena, bool is_in_change) noexcept;

// ---- invariants ----

// Checks the features' own invariants; `marked` is the number of large blocks with sample_mark
// (large_blocks.h).
Fault find_fault(std::uint64_t marked) noexcept;

}  // namespace ts::engine::hooks
