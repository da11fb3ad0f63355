// The core without features, tsmalloc-core: all hooks are empty. The difference to the engine is
// the price of the features.
#include "core/common_heap.h"
#include "core/heap_lifecycle.h"
#include "core/hooks.h"
#include "core/page_heap.h"
#include "core/reclaim.h"
#include "core/sparse_slabs.h"
#include "os/touched_pages.h"

namespace ts::engine {

void hooks::heap_begins(ThreadHeap&) noexcept {}
void hooks::thread_begins() noexcept {}
void hooks::thread_is_ending() noexcept {}
void hooks::thread_ended() noexcept {}
void hooks::frees_stay_uncollected(std::uint32_t) noexcept {}

void hooks::attend() noexcept {}
void hooks::attend_to_heap(ThreadHeap& heap) noexcept { heap.is_to_scavenge = false; }
void hooks::look_at_heap(ThreadHeap&) noexcept {}

void hooks::heap_grows(ThreadHeap&, std::size_t) noexcept {}
void hooks::before_growth(std::size_t) noexcept {}
void hooks::dirty_memory_grew() noexcept {}
void hooks::growth_refused(std::size_t, std::size_t) noexcept {}
void hooks::before_failure() noexcept {}
void hooks::fresh_memory(std::byte*, std::size_t, bool) noexcept {}

void* hooks::allocate_guarded(unsigned) noexcept { return nullptr; }
void* hooks::allocate_sampled(std::size_t, unsigned) noexcept { return nullptr; }
bool hooks::release_sampled(void*, PageMapEntry) noexcept { return false; }
bool hooks::release_foreign(const void*) noexcept { return false; }
std::size_t hooks::foreign_bytes(const void*) noexcept { return 0; }
const void* hooks::foreign_block_around(const void*) noexcept { return nullptr; }
std::size_t hooks::bytes_kept() noexcept { return 0; }

void hooks::fresh_large_block(const Span&, std::size_t) noexcept {}
void hooks::large_block_begins(Span&) noexcept {}
void hooks::large_block_sampled(void*, std::size_t, const void*) noexcept {}
void hooks::large_block_ends(Span&) noexcept {}
void hooks::before_large_release(const Span&) noexcept {}

// Never called: nothing purges within slabs.
void hooks::restore_blocks(ThreadHeap&, Span&) noexcept {}
void hooks::purge_sparse_slabs(ThreadHeap& heap, std::size_t, Mutex*) noexcept {
  const HeapHold hold{heap};
  while (heap.first_sparse != 0) unqueue_sparse_slab(heap, queued_slab(heap.first_sparse));
}

void hooks::flush_heaps() noexcept {}
void hooks::purge_slabs(ThreadHeap&) noexcept {}

namespace {

constinit Mutex* const in_order[] = {&background_lock, &common_lock,  &collection_lock,
                                     &abandoned_lock,  &reclaim_lock, &page_heap.lock(),
                                     &page_table_lock};

}  // namespace

std::span<Mutex* const> hooks::mutexes_in_order() noexcept { return in_order; }
void hooks::child_begins() noexcept { page_heap.forget_other_threads(); }
void hooks::arena_in_child(ThreadHeap&, bool) noexcept {}

Fault hooks::find_fault(std::uint64_t) noexcept { return {}; }

}  // namespace ts::engine
