#include "engine/housekeeping.h"

#include <cerrno>

#include "engine/abandoned.h"
#include "engine/current_heap.h"
#include "engine/page_heap.h"
#include "engine/reclaim.h"
#include "os/options.h"
#include "os/os.h"

namespace ts::engine {
namespace {

constexpr std::uint32_t round_ms = 200;
// After the system refused to take memory, such as what is locked.
constexpr std::uint32_t refused_ms = 60'000;

// How many threads of the process, at least, got a heap: two prove that it has threads.
constinit Atomic<std::uint32_t> threads_seen{0};
// Whether the process has a housekeeper, or the system refused it.
constinit Atomic<bool> is_started{false};
// PageHeap::awake or resting: stored under the lock of the page heap, read by the system's wait.
constinit Atomic<std::uint32_t> state{PageHeap::awake};

// Purges down to so many pages; false if the system did not take all.
bool purge_to(std::size_t keep_pages) noexcept {
  for (;;) {
    const Guard guard{housekeeping_lock};
    switch (page_heap.purge_slice(keep_pages)) {
      case PageHeap::Purged::all:
        return true;
      case PageHeap::Purged::refused:
        return false;
      case PageHeap::Purged::slice:
        break;
    }
  }
}

// Works until there is nothing to be done.
void work() noexcept {
  for (bool is_settled = false; !page_heap.may_rest(state, is_settled);) {
    os::wait_for(state, PageHeap::awake, round_ms);
    reclaim_all();
    const std::size_t keep = page_heap.end_round();
    is_settled = page_heap.is_settled();
    if (is_settled) collect_abandoned(SIZE_MAX);
    if (keep != PurgePolicy::keep_all && !purge_to(keep))
      os::wait_for(state, PageHeap::awake, refused_ms);
  }
}

void* keep_house(void*) noexcept {
  os::name_thread("tsmalloc");
  for (;;) {
    work();
    os::wait(state, PageHeap::resting);
  }
}

}  // namespace

void start_housekeeper_if_due() noexcept {
  // relaxed, here and below: one thread is the first, and no data depends on it
  const bool is_first = threads_seen.fetch_add(1, std::memory_order_relaxed) == 0;
  const Background background = current_options.background;
  if (background == Background::off || (is_first && background == Background::automatic)) return;
  if (is_started.exchange(true, std::memory_order_relaxed)) return;
  const int saved_errno = errno;
  os::start_thread(keep_house);
  errno = saved_errno;
}

void forget_housekeeper() noexcept {
  page_heap.forget_housekeeper();
  state.store(PageHeap::awake, std::memory_order_relaxed);
  is_started.store(false, std::memory_order_relaxed);
  threads_seen.store(has_heap() ? 1 : 0, std::memory_order_relaxed);
}

}  // namespace ts::engine
