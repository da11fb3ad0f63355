#include "features/background/rest.h"

#include "core/hooks.h"
#include "core/page_heap.h"
#include "os/os.h"

namespace ts::engine {
namespace {

constexpr std::uint32_t awake = 0;
constexpr std::uint32_t resting = 1;
constinit Atomic<std::uint32_t> state{awake};  // waited on by the system

// Nonzero while a background thread is attached. relaxed: a hint for housekeep()
constinit Atomic<std::uint32_t> is_attached{0};

// Pages of slabs without an owner that have pending frees.
constexpr std::uint32_t uncollected_to_wake = (std::uint32_t{4} << 20) / page_bytes;
constexpr std::uint32_t uncollected_to_collect = uncollected_to_wake / 4;
constinit Atomic<std::uint32_t> uncollected{0};

}  // namespace

void wake_background_thread() noexcept {
  // release: pairs with may_rest(). Either that finds the work, or its rest ends here.
  state.exchange(awake, std::memory_order_release);
  os::wake(state, 1);
}

bool has_work(bool gives_up) noexcept {
  return (!gives_up && page_heap.has_surplus_at_rest()) || has_uncollected();
}

bool may_rest(bool gives_up) noexcept {
  if (has_work(gives_up)) return false;
  // acquire: pairs with wake_background_thread(), whose caller's work is found below, or its option
  // before the rest begins
  state.exchange(resting, std::memory_order_acquire);
  page_heap.watch_dirty_memory();
  if (!has_work(gives_up)) return true;
  state.exchange(awake, std::memory_order_acquire);  // keeps the pairing with the next rest
  return false;
}

void rest() noexcept { os::wait(state, resting); }
void rest_for(std::uint32_t milliseconds) noexcept { os::wait_for(state, resting, milliseconds); }
void wait_for_round(std::uint32_t milliseconds) noexcept {
  os::wait_for(state, awake, milliseconds);
}

void hooks::dirty_memory_grew() noexcept { wake_background_thread(); }

void hooks::frees_stay_uncollected(std::uint32_t pages) noexcept {
  // release: pairs with take_uncollected(), whose caller then collects these frees
  const std::uint32_t before = uncollected.fetch_add(pages, std::memory_order_release);
  // No rest begins above this, so it ends one only once.
  if (before < uncollected_to_wake && before + pages >= uncollected_to_wake)
    wake_background_thread();
}

bool has_uncollected() noexcept {
  return uncollected.load(std::memory_order_relaxed) >= uncollected_to_collect;
}

bool take_uncollected() noexcept {
  if (!has_uncollected()) return false;
  uncollected.exchange(0, std::memory_order_acquire);
  return true;
}

void attach_background_thread() noexcept {
  page_heap.limit_releases_to_a_slice(true);
  is_attached.store(1, std::memory_order_relaxed);
}

void detach_background_thread() noexcept {
  is_attached.store(0, std::memory_order_relaxed);
  page_heap.limit_releases_to_a_slice(false);
  state.exchange(awake, std::memory_order_acquire);
}

bool is_resting() noexcept { return state.load(std::memory_order_relaxed) == resting; }

bool has_background_thread() noexcept { return is_attached.load(std::memory_order_relaxed) != 0; }

void forget_rest() noexcept {
  state.store(awake, std::memory_order_relaxed);
  is_attached.store(0, std::memory_order_relaxed);
}

}  // namespace ts::engine
