#include "features/background/background_rounds.h"

#include <algorithm>

#include "core/heap_lifecycle.h"
#include "core/page_heap.h"
#include "core/reclaim_all.h"
#include "features/arenas/idle_arenas.h"
#include "features/background/rest.h"
#include "features/limits/limits.h"
#include "os/os.h"

namespace ts::engine {
namespace {

constexpr std::uint64_t round_ms = 200;

// The last round, and the work left from it.
struct Round {
  std::uint64_t ended_at = 0;     // milliseconds
  std::size_t pages = 0;          // to be purged
  bool has_sparse_slabs = false;  // abandoned heaps may have some
  bool has_collected = false;     // from abandoned heaps, since the last rest or reset
  std::uint32_t heaps = 0;        // left to collect from
  bool is_settled = false;        // the last rounds purged everything that was idle
  bool is_refused = false;        // the system refused the last purge
};
constinit Round last_round TS_GUARDED_BY(background_lock);
// Nonzero while a thread is in a slice, which gives up the lock at times. (A word, because riscv64
// needs libatomic to exchange a byte.) acquire, release: each slice sees the stores of the previous
// one.
constinit Atomic<std::uint32_t> is_at_work{0};

// How many abandoned heaps a slice collects from.
constexpr std::uint32_t heaps_of_slice = 4;

// Collects from all abandoned heaps, in slices, when little else is left to do. False if that is
// done.
bool collect_slice() noexcept TS_REQUIRES(background_lock) {
  if (last_round.heaps == 0) {
    if (last_round.has_collected || !any_abandoned.load(std::memory_order_relaxed)) return false;
    last_round.has_collected = true;
    last_round.heaps = page_map.heap_count.load(std::memory_order_relaxed);
  }
  collect_abandoned(heaps_of_slice);
  last_round.heaps -= std::min(last_round.heaps, heaps_of_slice);
  last_round.has_sparse_slabs = true;
  return true;
}

void end_round() noexcept {
  look_at_limits();
  const Guard guard{background_lock};
  collect_idle_arenas();
  reclaim_idle();
  if (last_round.is_settled) {
    collect_abandoned(SIZE_MAX);
    page_heap.give_back_tables();
  }
  const PageHeap::RoundEnd round = page_heap.end_round();
  last_round.pages = round.pages_to_purge;
  last_round.is_settled = round.is_settled;
  last_round.has_sparse_slabs = true;
  if (take_uncollected()) last_round.has_collected = false;
  last_round.is_refused = false;
}

// False if there was nothing to purge.
bool purge_slice() noexcept {
  Round now;
  {
    const Guard guard{background_lock};
    now = last_round;
  }
  if (now.has_sparse_slabs && purge_delay().is_never()) now.has_sparse_slabs = false;
  if (now.has_sparse_slabs) {
    now.has_sparse_slabs = purge_abandoned(&background_lock);
    const Guard guard{background_lock};
    last_round.has_sparse_slabs = now.has_sparse_slabs;
  }
  if (now.has_sparse_slabs) return true;
  if (now.pages == 0) return false;
  const std::size_t gone = page_heap.purge_slice(now.pages);
  const Guard guard{background_lock};
  last_round.is_refused = gone == 0;
  last_round.pages -= last_round.is_refused ? last_round.pages : std::min(last_round.pages, gone);
  return true;
}

// Whether dirty memory stays, because the system refused to take it.
bool gives_up() noexcept TS_REQUIRES(background_lock) {
  return last_round.is_refused && last_round.is_settled;
}

// Does a slice of work, or ends a round. Returns in how many milliseconds to call it again.
int work_at_slice() noexcept {
  if (purge_slice()) return 0;
  const std::uint64_t now = os::coarse_milliseconds();
  std::uint64_t since = 0;
  {
    const Guard guard{background_lock};
    since = now - last_round.ended_at;
    if (since >= round_ms) last_round.ended_at = now;
  }
  if (since >= round_ms) {
    end_round();
    return 0;
  }
  const Guard guard{background_lock};
  if (has_work(gives_up())) return static_cast<int>(round_ms - since);
  return collect_slice() ? 0 : none_is_due;
}

}  // namespace

int do_background_work() noexcept {
  if (is_at_work.exchange(1, std::memory_order_acquire) != 0) return round_ms;
  const int pause = work_at_slice();
  page_heap.send_purges();
  is_at_work.store(0, std::memory_order_release);
  return pause;
}

bool may_rest_between_rounds() noexcept {
  const Guard guard{background_lock};
  return may_rest(gives_up());
}

void begin_rounds() noexcept {
  const Guard guard{background_lock};
  last_round.ended_at = os::coarse_milliseconds();
  last_round.has_collected = false;
}

void forget_rounds() noexcept TS_NO_ANALYSIS {
  last_round = {};
  is_at_work.store(0, std::memory_order_relaxed);
}

}  // namespace ts::engine
