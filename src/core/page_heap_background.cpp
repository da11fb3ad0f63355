// The page heap's part of the background thread: when it may rest, and what wakes it.
#include <algorithm>

#include "core/current_heap.h"
#include "core/page_heap.h"
#include "os/os.h"

namespace ts::engine {

[[gnu::cold]] void PageHeap::wake_for_work() noexcept {
  // relaxed: stored under the lock only, and the background thread finds its work under the lock
  background_state_.store(awake, std::memory_order_relaxed);
  wake_above_ = never;
  os::wake(background_state_, 1);
}

void PageHeap::note_uncollected(std::uint32_t pages) noexcept {
  const Guard guard{lock_};
  uncollected_ += pages;
  const bool is_resting = background_state_.load(std::memory_order_relaxed) == resting;
  if (is_resting && uncollected_ >= uncollected_to_wake) wake_for_work();
}

bool PageHeap::has_uncollected() noexcept {
  const Guard guard{lock_};
  return uncollected_ >= uncollected_to_collect;
}

bool PageHeap::take_uncollected() noexcept {
  const Guard guard{lock_};
  if (uncollected_ < uncollected_to_collect) return false;
  uncollected_ = 0;
  return true;
}

std::size_t PageHeap::end_round() noexcept {
  const Guard guard{lock_};
  const std::uint64_t now = os::coarse_milliseconds();
  const std::size_t keep =
      policy_.pages_to_keep_in_round(now, in_use(), dirty_.pages(), purge_delay());
  if (keep == PurgePolicy::keep_all) return 0;
  policy_.note_purge(now, dirty_.pages(), keep);
  return dirty_.pages() - keep;
}

std::size_t PageHeap::purge_slice(std::size_t pages) noexcept {
  {
    const Guard guard{lock_};
    const std::size_t min_pages = policy_.is_settled() ? 1 : min_purge_pages;
    purge(0, min_pages, std::min(pages, slice_pages));
    policy_.note_dirty(dirty_.pages());
  }
  return send_purges();
}

bool PageHeap::is_settled() noexcept {
  const Guard guard{lock_};
  return policy_.is_settled();
}

void PageHeap::attach_background_thread() noexcept {
  const Guard guard{lock_};
  has_background_thread_ = true;
}

void PageHeap::detach_background_thread() noexcept {
  const Guard guard{lock_};
  forget_background_thread();
}

void PageHeap::wake_background_thread() noexcept {
  // release: pairs with may_rest. Either may_rest sees the option, or its rest ends here.
  background_state_.exchange(awake, std::memory_order_release);
  os::wake(background_state_, 1);
}

bool PageHeap::has_background_thread() noexcept {
  const Guard guard{lock_};
  return has_background_thread_;
}

bool PageHeap::is_too_much_dirty(bool gives_up) noexcept {
  return dirty_.pages() > PurgePolicy::rest_limit(in_use(), purge_delay()) && !gives_up;
}

bool PageHeap::has_work(bool gives_up) noexcept {
  const Guard guard{lock_};
  return is_too_much_dirty(gives_up);
}

bool PageHeap::may_rest(bool gives_up) noexcept {
  const Guard guard{lock_};
  if (is_too_much_dirty(gives_up) || uncollected_ >= uncollected_to_collect) return false;
  wake_above_ = std::max(PurgePolicy::rest_limit(in_use(), purge_delay()),
                         dirty_.pages() + PurgePolicy::min_rest_limit);
  // acquire: pairs with wake_background_thread, whose caller's option is seen before the rest
  // begins
  background_state_.exchange(resting, std::memory_order_acquire);
  return true;
}

void PageHeap::rest() noexcept { os::wait(background_state_, resting); }

void PageHeap::rest_for(std::uint32_t milliseconds) noexcept {
  os::wait_for(background_state_, resting, milliseconds);
}

void PageHeap::wait_for_round(std::uint32_t milliseconds) noexcept {
  os::wait_for(background_state_, awake, milliseconds);
}

void PageHeap::forget_background_thread() noexcept {
  background_state_.store(awake, std::memory_order_relaxed);
  wake_above_ = never;
  has_background_thread_ = false;
}

// Spans that other threads are purging are dirty again. (The calling thread may itself be in a
// purge: if a replaced system function forks, or a signal handler in a process with one thread.)
void PageHeap::forget_other_threads() noexcept {
  forget_background_thread();
  waiting_for_purges_ = 0;
  for (Span* span = leaving_; span != nullptr;) {
    Span* const next = span->next;
    if (span->purger != &this_thread) {
      const std::size_t pages = span->pages;
      end_purge(span, pages);
      insert_coalesced(span, pages, false);
    }
    span = next;
  }
}

}  // namespace ts::engine
