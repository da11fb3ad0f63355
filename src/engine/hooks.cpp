// Where the core meets several features at once: the hooks that more than one of them has something
// to do in.
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
  const OutOfScope out_of_scope;  // what that needs is not an arena's
  attention.store(0, std::memory_order_relaxed);
  // Behind that store: what is set from now on asks anew.
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
    &background_lock,     // a slice of the background thread's work
    &arenas_lock,         // a maintainer of an arena
    &common_lock,         // refill of the common heap
    &samples_lock,        // refill of the sample heap
    &collection_lock,     // an abandoned heap that is out of its queue
    &abandoned_lock,      // the queue
    &reclaim_lock,        // a hold of a heap may wait for it
    &page_heap.lock(),    // spans
    &sampled_guard_lock,  // slots of guarded blocks
    &page_table_lock,     // a file that is open for a look
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
