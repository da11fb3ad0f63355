#include "engine/housekeeping.h"

#include <algorithm>
#include <cerrno>

#include "engine/abandoned.h"
#include "engine/arena_use.h"
#include "engine/current_heap.h"
#include "engine/deferred_work.h"
#include "engine/huge_pages.h"
#include "engine/idle_arenas.h"
#include "engine/limits.h"
#include "engine/page_heap.h"
#include "engine/reclaim.h"
#include "engine/remote_frees.h"
#include "engine/sampling_switch.h"
#include "engine/tending.h"
#include "engine/thread_ends.h"
#include "os/options.h"
#include "os/os.h"

namespace ts::engine {
namespace {

constexpr std::uint64_t round_ms = 200;
constexpr int none_is_due = -1;
// The longest rest where the first thread has ended, and another's end may not be told.
constexpr std::uint32_t rest_without_first_ms = 1000;

// How many threads are housekeepers, from before their start to the end of keep_house().
constinit Atomic<std::uint32_t> housekeepers{0};
inline Atomic<std::uint32_t>& starts = housekeeper_starts;

// The last round, and what of it is left to do.
struct Round {
  std::uint64_t ended_at = 0;  // milliseconds
  std::size_t pages = 0;       // to be purged
  bool has_low_slabs = false;  // perhaps, of abandoned heaps
  bool has_collected = false;  // from abandoned heaps, since the last rest or what was noted
  std::uint32_t heaps = 0;     // from which to collect
  bool is_refused = false;     // by the system, what was to be purged
};
constinit Round last_round TS_GUARDED_BY(housekeeping_lock);
// Not 0 while a thread is in a slice, for which it lets go of the lock. (Not a byte, as above.)
// acquire, release: each slice sees the stores of the one before.
constinit Atomic<std::uint32_t> is_at_work{0};

// From so many abandoned heaps in a slice.
constexpr std::uint32_t heaps_of_slice = 4;

// From all of them, in slices, where little else is left to do. False if that is done.
bool collect_slice() noexcept TS_REQUIRES(housekeeping_lock) {
  if (last_round.heaps == 0) {
    if (last_round.has_collected || !any_abandoned.load(std::memory_order_relaxed)) return false;
    last_round.has_collected = true;
    last_round.heaps = page_map.heap_count.load(std::memory_order_relaxed);
  }
  collect_abandoned(heaps_of_slice);
  last_round.heaps -= std::min(last_round.heaps, heaps_of_slice);
  last_round.has_low_slabs = true;
  return true;
}

void end_round() noexcept {
  look_at_limits();
  const Guard guard{housekeeping_lock};
  collect_idle_arenas();
  reclaim_all();
  if (page_heap.is_settled()) collect_abandoned(SIZE_MAX);
  last_round.pages = page_heap.end_round();
  last_round.has_low_slabs = true;
  if (page_heap.take_uncollected()) last_round.has_collected = false;
  last_round.is_refused = false;
}

// False if there was nothing to purge.
bool purge_slice() noexcept {
  Round now;
  {
    const Guard guard{housekeeping_lock};
    now = last_round;
  }
  if (now.has_low_slabs) {
    now.has_low_slabs = purge_abandoned(&housekeeping_lock);
    const Guard guard{housekeeping_lock};
    last_round.has_low_slabs = now.has_low_slabs;
  }
  if (now.has_low_slabs) return true;
  if (now.pages == 0) return false;
  const std::size_t gone = page_heap.purge_slice(now.pages);
  const Guard guard{housekeeping_lock};
  last_round.is_refused = gone == 0;
  last_round.pages -= last_round.is_refused ? last_round.pages : std::min(last_round.pages, gone);
  return true;
}

// Whether what is dirty stays so, since the system did not take it.
bool gives_up() noexcept TS_REQUIRES(housekeeping_lock) {
  return last_round.is_refused && page_heap.is_settled();
}

// A slice of work, or the end of a round. Returns in how many milliseconds another is due.
int work_at_slice() noexcept {
  if (purge_slice()) return 0;
  const std::uint64_t now = os::coarse_milliseconds();
  std::uint64_t since = 0;
  {
    const Guard guard{housekeeping_lock};
    since = now - last_round.ended_at;
    if (since >= round_ms) last_round.ended_at = now;
  }
  if (since >= round_ms) {
    end_round();
    return 0;
  }
  const Guard guard{housekeeping_lock};
  if (page_heap.has_work(gives_up()) || page_heap.has_uncollected())
    return static_cast<int>(round_ms - since);
  return collect_slice() ? 0 : none_is_due;
}

// The same, unless another thread is at it. Without a lock.
int work() noexcept {
  if (is_at_work.exchange(1, std::memory_order_acquire) != 0) return round_ms;
  const int pause = work_at_slice();
  page_heap.send_purges();
  is_at_work.store(0, std::memory_order_release);
  return pause;
}

// Also where ends of threads are not all told: the housekeeper might be the last thread for ever.
bool is_off() noexcept {
  return current_options.background == Background::off || !os::tells_all_thread_ends();
}

bool has_to_end() noexcept { return is_off() || have_all_ended(); }

// Until the housekeeper is woken. What was idle before is no evidence.
void rest() noexcept {
  if (has_to_end()) return;  // see PageHeap::may_rest
  // acquire: pairs with note_thread_ends(), which ends a rest that began before
  const bool has_first = first_has_ended.load(std::memory_order_acquire) == 0;
  has_first ? page_heap.rest() : page_heap.rest_for(rest_without_first_ms);
  const Guard guard{housekeeping_lock};
  last_round.ended_at = os::coarse_milliseconds();
  last_round.has_collected = false;
}

// A slice of work, and a wait until the next.
void work_and_wait() noexcept {
  int pause = work();
  if (pause == none_is_due) {
    const Guard guard{housekeeping_lock};
    if (!page_heap.may_rest(gives_up())) pause = 0;
  }
  if (pause > 0) page_heap.wait_for_round(static_cast<std::uint32_t>(pause));
  if (pause == none_is_due) rest();
}

// Whether the thread is no housekeeper any more.
bool has_ended() noexcept {
  // acq_rel: of this exchange and that of a start, the later one sees what comes before the other. A
  // start that found a housekeeper here was asked for by a value that is seen below; any later one
  // starts another.
  starts.exchange(0, std::memory_order_acq_rel);
  return has_to_end() || starts.exchange(1, std::memory_order_acq_rel) != 0;
}

void* keep_house(void*) noexcept {
  os::name_thread("tsmalloc");
  // relaxed: published with the end below
  housekeeper_id.store(os::thread_id(), std::memory_order_relaxed);
  do {
    page_heap.expect_housekeeper();
    while (!has_to_end()) work_and_wait();
    page_heap.dismiss_housekeeper();
  } while (!has_ended());
  // release: pairs with outlast_housekeeper()
  housekeepers.fetch_sub(1, std::memory_order_release);
  os::wake(housekeepers, 1);
  return nullptr;
}

// The process; 0 before it is known. The child of a vfork is another one, in the memory of this one.
// relaxed: set before other threads begin
constinit Atomic<std::uint64_t> own_process{0};
// Not 0 in the child of a fork, where the C library's word on threads may be the parent's. relaxed: set
// before the child goes on
constinit Atomic<std::uint32_t> is_child{0};

// Whether there is a second thread: one that has a heap, or that the C library knows of.
bool has_threads() noexcept {
  // relaxed: of two threads one began later, and no data depends on it
  return threads_begun.load(std::memory_order_relaxed) > 1 ||
         (is_child.load(std::memory_order_relaxed) == 0 && os::has_several_threads());
}

// Whether the process is to have a housekeeper. A counted library counts the program's calls alone.
bool is_wanted() noexcept {
  if (is_off()) return false;
  return current_options.background == Background::on || (!counting && has_threads());
}

// Unless there is one.
void start_housekeeper() noexcept {
  if (starts.exchange(1, std::memory_order_acq_rel) != 0) return;  // see has_ended()
  const int saved_errno = errno;
  const OutOfScope out_of_scope;  // what a thread needs outlives an arena
  // release: pairs with give_thread_key_back()
  os::when_ends_are_untold.store([] { page_heap.stir_housekeeper(); }, std::memory_order_release);
  housekeepers.fetch_add(1, std::memory_order_relaxed);
  if (!os::start_thread(keep_house)) housekeepers.fetch_sub(1, std::memory_order_relaxed);
  errno = saved_errno;
}

// The last thread of a process runs its exit handlers, on its stack and with its signals: that is to
// be a thread of the program. For two seconds at most, in steps of a millisecond.
void outlast_housekeeper() noexcept {
  constexpr int most_steps = 1000;
  // acquire: pairs with keep_house()
  for (int step = 0; step < most_steps; ++step) {
    const std::uint32_t now = housekeepers.load(std::memory_order_acquire);
    if (now == 0) break;
    os::wait_for(housekeepers, now, 1);
  }
  const std::uint32_t id = housekeeper_id.exchange(0, std::memory_order_relaxed);
  for (int step = 0; id != 0 && step < most_steps && os::has_thread(id); ++step)
    os::wait_for(housekeepers, 0, 1);
}

int housekeep_heap() noexcept {
  const OutOfScope out_of_scope;
  if (!has_heap()) return none_is_due;
  ThreadHeap& heap = own_heap();
  {
    const HeapHold hold{heap};
    collect(heap);
  }
  send_purges_if_any();
  return tend_before_wait(heap);
}

int sooner(int pause, int other) noexcept {
  if (pause == none_is_due) return other;
  return other == none_is_due ? pause : std::min(pause, other);
}

}  // namespace

void note_thread_begins() noexcept { threads_begun.fetch_add(1, std::memory_order_acq_rel); }

void note_thread_ends() noexcept {
  const bool is_first = os::thread_id() == os::process_id();
  if (is_first) first_has_ended.store(1, std::memory_order_release);
  threads_ended.fetch_add(1, std::memory_order_acq_rel);
  if (housekeepers.load(std::memory_order_relaxed) == 0) return;
  const bool was_last = have_all_ended();
  if (is_first || was_last) page_heap.stir_housekeeper();
  if (was_last) outlast_housekeeper();
}

void start_housekeeper_if_due() noexcept {
  if (is_wanted()) start_housekeeper();
}

void begin_housekeeping() noexcept {
  own_process.store(os::process_id(), std::memory_order_relaxed);
}

void start_missing_housekeeper() noexcept {
  if (is_wanted() && own_process.load(std::memory_order_relaxed) == os::process_id())
    start_housekeeper();
}

void put_off_start() noexcept {
  if (is_wanted() && starts.load(std::memory_order_relaxed) == 0) put_off_to_malloc();
}

void follow_options_soon() noexcept {
  follow_limit_options();
  put_off_profile_option();
  if (current_options.huge_pages == HugePages::never) refuse_all_huge_pages();
  if (is_off()) {
    if (starts.load(std::memory_order_relaxed) != 0) page_heap.stir_housekeeper();
  } else if (is_wanted()) {
    put_off_to_malloc();  // even if there is one, which may be about to end
  }
}

bool start_housekeeper_now() noexcept {
  if (start_put_off.load(std::memory_order_relaxed) != os::process_id()) return false;
  const OutOfScope out_of_scope;  // what that needs is not an arena's
  start_put_off.store(0, std::memory_order_relaxed);
  // Behind that store: what is set from now on is put off anew.
  if (options_were_set.exchange(0, std::memory_order_relaxed) != 0) {
    follow_options_soon();
    look_at_limits();
  }
  follow_profile_option();
  deliver_limit_events();
  if (is_wanted()) start_housekeeper();
  return true;
}

void follow_options() noexcept {
  follow_options_soon();
  look_at_limits();
  start_housekeeper_now();
}

int housekeep() noexcept {
  const int saved_errno = errno;
  int pause = housekeep_heap();
  if (!page_heap.has_housekeeper()) pause = sooner(pause, work());
  errno = saved_errno;
  return pause;
}

void forget_housekeeper() noexcept TS_NO_ANALYSIS {
  last_round = {};
  is_at_work.store(0, std::memory_order_relaxed);
  is_child.store(1, std::memory_order_relaxed);
  begin_housekeeping();
  page_heap.forget_other_threads();
  starts.store(0, std::memory_order_relaxed);
  start_put_off.store(0, std::memory_order_relaxed);
  threads_begun.store(has_heap() ? 1 : 0, std::memory_order_relaxed);
  threads_ended.store(0, std::memory_order_relaxed);
  first_has_ended.store(0, std::memory_order_relaxed);
  housekeepers.store(0, std::memory_order_relaxed);
  housekeeper_id.store(0, std::memory_order_relaxed);
}

}  // namespace ts::engine
