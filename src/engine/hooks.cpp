// Hooks that more than one feature implements.
#include "core/hooks.h"

#include <utility>

#include "core/attention.h"
#include "core/common_heap.h"
#include "core/heap_lifecycle.h"
#include "core/large_blocks.h"
#include "core/page_heap.h"
#include "core/reclaim.h"
#include "engine/follow_options.h"
#include "engine/inspection.h"
#include "features/arenas/arena_blocks.h"
#include "features/arenas/idle_arenas.h"
#include "features/background/background_thread.h"
#include "features/guard/sampled_guard.h"
#include "features/limits/limits.h"
#include "features/profile/large_samples.h"
#include "features/profile/sample_heap.h"
#include "features/profile/samples.h"
#include "features/profile/sampling_switch.h"
#include "features/sparse/scavenge.h"
#include "os/touched_pages.h"

namespace ts::engine {

void hooks::attend() noexcept {
  if (attention.load(std::memory_order_relaxed) != os::process_id()) return;
  const OutOfScope out_of_scope;  // what follows allocates is not an arena's
  attention.store(0, std::memory_order_relaxed);
  // After that store: an option that is set from now on requests attention again.
  if (options_were_set.exchange(0, std::memory_order_relaxed) != 0) {
    follow_options_soon();
    look_at_limits();
  }
  follow_profile_option();
  deliver_limit_events();
  start_background_thread_if_wanted();
}

void hooks::attend_to_heap(ThreadHeap& heap) noexcept {
  if (std::exchange(heap.is_to_scavenge, false)) scavenge(heap);
  request_missing_start();
}

void hooks::before_growth(std::size_t pages) noexcept {
  request_missing_start();
  prepare_growth(pages);
}

void hooks::large_block_ends(Span& span) noexcept {
  is_large_sample(span) ? forget_large_sample(span) : remove_large_block(span);
}

void hooks::flush_heaps() noexcept {
  flush_arenas();
  flush_sample_heap();
}

namespace {

constinit Mutex* const in_order[] = {
    &background_lock,     // held by a slice of the background thread's work
    &arenas_lock,         // held to maintain an arena
    &common_lock,         // held for a refill of the common heap
    &samples_lock,        // held for a refill of the sample heap
    &collection_lock,     // held while an abandoned heap is out of its queue
    &abandoned_lock,      // guards the queue
    &reclaim_lock,        // held while waiting for a hold of a heap
    &page_heap.lock(),    // guards the spans
    &sampled_guard_lock,  // guards the slots of guarded blocks
    &page_table_lock,     // guards a file that is open for reading
};

}  // namespace

std::span<Mutex* const> hooks::mutexes_in_order() noexcept {
  leave_inspection_note();
  return in_order;
}

void hooks::child_begins() noexcept {
  forget_samples_in_progress();
  forget_background_thread();
  forget_looks();
}

}  // namespace ts::engine
