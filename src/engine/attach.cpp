#include "engine/attach.h"

#include "base/event_counts.h"
#include "engine/abandoned.h"
#include "engine/arena_use.h"
#include "engine/cache_bins.h"
#include "engine/current_heap.h"
#include "engine/housekeeping.h"
#include "engine/invariants.h"
#include "engine/new_heap.h"
#include "engine/remote_frees.h"
#include "engine/sent_purges.h"
#include "os/os.h"

namespace ts::engine {
namespace {

void thread_ends(void* argument) {
  auto& heap = *static_cast<ThreadHeap*>(argument);
  leave_all_scopes();
  // The rest of this thread (other destructors, the C library's own end) gets no heap: a second one
  // might never be taken back.
  if (this_thread.heap == &heap) this_thread.heap = ended_heap;
  const std::uint32_t pages = [&heap] {
    const HeapHold hold{heap};
    return pages_of_slabs(heap);
  }();
  const bool keeps_bins = may_keep_bins(pages);
  {
    const HeapHold hold{heap};
    if (keeps_bins) {
      flush_batches(heap);
    } else {
      flush(heap);
    }
    if constexpr (debug_level >= 1) check_at_rest(heap);
  }
  {
    const Guard guard{abandoned_lock};
    abandon(heap, keeps_bins, pages);
  }
  send_purges_if_any();
  note_thread_ends();
}

}  // namespace

ThreadHeap* attach_heap() noexcept {
  ThreadHeap* heap = adopt_abandoned();
  const bool is_adopted = heap != nullptr;
  if (!is_adopted) heap = new_heap();
  if (heap == nullptr) return nullptr;
  if constexpr (counting) count_event(is_adopted ? Event::adopted_heaps : Event::heaps_created);
  if constexpr (debug_level >= 1) {
    const HeapHold hold{*heap};
    check_at_rest(*heap);
  }
  note_thread_begins();
  // Before the registration, which may allocate.
  this_thread.heap = heap;
  if (os::call_at_thread_exit(thread_ends, heap)) return heap;
  thread_ends(heap);
  return nullptr;
}

}  // namespace ts::engine
