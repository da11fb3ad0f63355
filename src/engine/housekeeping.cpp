#include "engine/housekeeping.h"

#include <algorithm>
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

// How many threads of the process, at least, got a heap: two prove that it has threads.
constinit Atomic<std::uint32_t> threads_seen{0};
// Not 0 if the process has a housekeeper, or the system refused it. (Not a byte, which riscv64
// exchanges by a library.)
constinit Atomic<std::uint32_t> starts{0};

// Purges so many pages, a slice at a time; false if the system did not take all.
bool purge(std::size_t pages) noexcept {
  while (pages != 0) {
    const Guard guard{housekeeping_lock};
    const std::size_t gone = page_heap.purge_slice(pages);
    if (gone == 0) return false;
    pages -= std::min(pages, gone);
  }
  return true;
}

void collect() noexcept {
  const Guard guard{housekeeping_lock};
  reclaim_all();
  if (page_heap.is_settled()) collect_abandoned(SIZE_MAX);
}

bool purge_some_abandoned() noexcept {
  const Guard guard{housekeeping_lock};
  return purge_abandoned();
}

// Works until there is nothing to be done.
void work() noexcept {
  for (bool gives_up = false; !page_heap.may_rest(gives_up);) {
    page_heap.wait_for_round(round_ms);
    collect();
    while (purge_some_abandoned()) continue;
    const bool is_all = purge(page_heap.end_round());
    gives_up = !is_all && page_heap.is_settled();
  }
}

void* keep_house(void*) noexcept {
  os::name_thread("tsmalloc");
  for (;;) {
    work();
    page_heap.rest();
  }
}

}  // namespace

void start_housekeeper_if_due() noexcept {
  // relaxed, here and below: one thread is the first, and no data depends on it
  const bool is_first = threads_seen.fetch_add(1, std::memory_order_relaxed) == 0;
  const Background background = current_options.background;
  // What a counted library counts is the program's alone.
  const bool is_no_reason = is_first || counting;
  if (background == Background::off || (is_no_reason && background == Background::automatic))
    return;
  if (starts.exchange(1, std::memory_order_relaxed) != 0) return;
  const int saved_errno = errno;
  os::start_thread(keep_house);
  errno = saved_errno;
}

void forget_housekeeper() noexcept {
  page_heap.forget_housekeeper();
  starts.store(0, std::memory_order_relaxed);
  threads_seen.store(has_heap() ? 1 : 0, std::memory_order_relaxed);
}

}  // namespace ts::engine
