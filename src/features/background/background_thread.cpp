#include "features/background/background_thread.h"

#include <algorithm>
#include <cerrno>

#include "core/attention.h"
#include "core/current_heap.h"
#include "core/deferred_work.h"
#include "core/hooks.h"
#include "core/page_heap.h"
#include "core/remote_frees.h"
#include "features/background/rest.h"
#include "features/background/thread_ends.h"
#include "features/sparse/scavenge.h"
#include "os/options.h"
#include "os/os.h"

namespace ts::engine {
namespace {

// The longest rest after the first thread has ended, when another thread's end may go unnoticed.
constexpr std::uint32_t rest_without_first_ms = 1000;

// How many background threads there are, from before their start to the end of
// run_background_thread().
constinit Atomic<std::uint32_t> background_threads{0};
// The process ID, for the start of a background thread; 0 before it is known. The child of a vfork
// is another process in the memory of this one. relaxed: set before other threads begin
constinit Atomic<std::uint64_t> own_process{0};
// Nonzero in the child of a fork, where the C library's count of threads may be the parent's.
// relaxed: set before the child continues
constinit Atomic<std::uint32_t> is_child{0};
inline Atomic<std::uint32_t>& starts = background_thread_starts;

// Also off if not all ends of threads are reported: the background thread might be the last thread,
// and would keep the process alive.
bool is_off() noexcept {
  return current_options.background == Background::off || !os::tells_all_thread_ends();
}

bool has_to_end() noexcept { return is_off() || have_all_ended(); }

// Rests until woken. What was idle before then does not count.
void rest_until_woken() noexcept {
  if (has_to_end()) return;  // see may_rest()
  // acquire: pairs with hooks::thread_ended(), which ends a rest that began before
  const bool has_first = first_has_ended.load(std::memory_order_acquire) == 0;
  has_first ? rest() : rest_for(rest_without_first_ms);
  begin_rounds();
}

// Does a slice of work, and waits until the next one is due.
void work_and_wait() noexcept {
  int pause = do_background_work();
  if (pause == none_is_due && !may_rest_between_rounds()) pause = 0;
  if (pause > 0) wait_for_round(static_cast<std::uint32_t>(pause));
  if (pause == none_is_due) rest_until_woken();
}

// Whether the thread has stopped being the background thread.
bool has_ended() noexcept {
  // acq_rel: whichever of this exchange and that of a start comes later sees everything before the
  // other. A start that found a background thread here was requested by a value that is read below;
  // any later one starts another thread.
  starts.exchange(0, std::memory_order_acq_rel);
  return has_to_end() || starts.exchange(1, std::memory_order_acq_rel) != 0;
}

void* run_background_thread(void*) noexcept {
  os::name_thread("tsmalloc");
  // relaxed: published by the decrement below
  background_thread_id.store(os::thread_id(), std::memory_order_relaxed);
  do {
    attach_background_thread();
    while (!has_to_end()) work_and_wait();
    detach_background_thread();
  } while (!has_ended());
  // release: pairs with join_background_thread()
  background_threads.fetch_sub(1, std::memory_order_release);
  os::wake(background_threads, 1);
  return nullptr;
}

// Whether there is a second thread: one that has a heap, or that the C library knows of.
bool has_threads() noexcept {
  // relaxed: of two threads, one began later; no data depends on the count
  return threads_begun.load(std::memory_order_relaxed) > 1 ||
         (is_child.load(std::memory_order_relaxed) == 0 && os::has_several_threads());
}

// Whether the process should have a background thread. Instrumented builds count only the program's
// calls.
bool is_wanted() noexcept {
  if (is_off()) return false;
  return current_options.background == Background::on || (!counting && has_threads());
}

// Does nothing if there is one.
void start_background_thread() noexcept {
  if (starts.exchange(1, std::memory_order_acq_rel) != 0) return;  // see has_ended()
  const int saved_errno = errno;
  const OutOfScope out_of_scope;  // a thread's resources outlive an arena
  // release: pairs with give_thread_key_back()
  os::when_ends_are_untold.store([] { wake_background_thread(); }, std::memory_order_release);
  background_threads.fetch_add(1, std::memory_order_relaxed);
  if (!os::start_thread(run_background_thread))
    background_threads.fetch_sub(1, std::memory_order_relaxed);
  errno = saved_errno;
}

// Waits until the background thread has ended, for at most two seconds, in steps of a millisecond.
// The last thread of a process runs its exit handlers, with its stack and signals: that must be a
// thread of the program.
void join_background_thread() noexcept {
  constexpr int most_steps = 1000;
  // acquire: pairs with run_background_thread()
  for (int step = 0; step < most_steps; ++step) {
    const std::uint32_t now = background_threads.load(std::memory_order_acquire);
    if (now == 0) break;
    os::wait_for(background_threads, now, 1);
  }
  const std::uint32_t id = background_thread_id.exchange(0, std::memory_order_relaxed);
  for (int step = 0; id != 0 && step < most_steps && os::has_thread(id); ++step)
    os::wait_for(background_threads, 0, 1);
}

int housekeep_heap() noexcept {
  const OutOfScope out_of_scope;
  if (!has_heap()) return none_is_due;
  ThreadHeap& heap = current_heap();
  {
    const HeapHold hold{heap};
    collect(heap);
  }
  send_purges_if_any();
  return scavenge_before_wait(heap);
}

int sooner(int pause, int other) noexcept {
  if (pause == none_is_due) return other;
  return other == none_is_due ? pause : std::min(pause, other);
}

}  // namespace

void hooks::thread_begins() noexcept {
  threads_begun.fetch_add(1, std::memory_order_acq_rel);
  request_missing_start();
}

void hooks::thread_ended() noexcept {
  const bool is_first = os::thread_id() == os::process_id();
  if (is_first) first_has_ended.store(1, std::memory_order_release);
  threads_ended.fetch_add(1, std::memory_order_acq_rel);
  if (background_threads.load(std::memory_order_relaxed) == 0) return;
  const bool was_last = have_all_ended();
  if (is_first || was_last) wake_background_thread();
  if (was_last) join_background_thread();
}

void init_background_work() noexcept {
  own_process.store(os::process_id(), std::memory_order_relaxed);
}

// The child of a vfork, another process, must not request one: the thread would be its parent's.
void request_start() noexcept {
  if (!is_wanted()) return;
  const std::uint64_t known = own_process.load(std::memory_order_relaxed);
  if (known == 0 || known == os::process_id()) request_attention();
}

void start_background_thread_if_wanted() noexcept {
  if (is_wanted()) start_background_thread();
}

void follow_background_option() noexcept {
  if (is_off()) {
    if (starts.load(std::memory_order_relaxed) != 0) wake_background_thread();
  } else if (is_wanted()) {
    request_attention();  // even if there is one, which may be about to end
  }
}

int housekeep() noexcept {
  const int saved_errno = errno;
  int pause = housekeep_heap();
  if (!has_background_thread()) pause = sooner(pause, do_background_work());
  errno = saved_errno;
  return pause;
}

void forget_background_thread() noexcept TS_NO_ANALYSIS {
  forget_rounds();
  forget_rest();
  is_child.store(1, std::memory_order_relaxed);
  init_background_work();
  page_heap.forget_other_threads();
  starts.store(0, std::memory_order_relaxed);
  attention.store(0, std::memory_order_relaxed);
  threads_begun.store(has_heap() ? 1 : 0, std::memory_order_relaxed);
  threads_ended.store(0, std::memory_order_relaxed);
  first_has_ended.store(0, std::memory_order_relaxed);
  background_threads.store(0, std::memory_order_relaxed);
  background_thread_id.store(0, std::memory_order_relaxed);
}

}  // namespace ts::engine
