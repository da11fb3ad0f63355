#include "features/sparse/scavenge.h"

#include <algorithm>

#include "core/cache_bins.h"
#include "core/hooks.h"
#include "core/page_heap.h"
#include "core/slabs.h"
#include "core/sparse_slabs.h"
#include "features/sparse/slab_purge.h"
#include "os/os.h"

namespace ts::engine {
namespace {

constexpr std::uint64_t round_ns = 200'000'000;
// A slab that became sparse in one round has to stay so for the whole next one.
constexpr std::uint16_t rounds_to_wait = 2;
// If all of these come within a round, they take a thousandth of it.
constexpr std::uint16_t bypassed_refills_of_round = 1024;
// A call works for a fraction of the time since the last one that did, and not for long. It reads
// the clock after every few slabs.
constexpr std::uint64_t min_pause_ns = 1'000'000;
constexpr std::uint64_t part_of_time = 16;
constexpr std::uint64_t max_slice_ns = 4'000'000;
constexpr unsigned slabs_per_look = 8;
constexpr std::size_t max_made_up = 256;
// If this much is sparse, compared with the memory that was ever in use, growth waits for no round.
constexpr std::size_t min_surplus_pages = (std::size_t{16} << 20) / page_bytes;
constexpr std::size_t surplus_part = 8;

class OptionalGuard {
 public:
  explicit OptionalGuard(Mutex* lock) noexcept TS_NO_ANALYSIS : lock_{lock} {
    if (lock_ != nullptr) lock_->lock();
  }
  ~OptionalGuard() TS_NO_ANALYSIS {
    if (lock_ != nullptr) lock_->unlock();
  }
  OptionalGuard(const OptionalGuard&) = delete;
  OptionalGuard& operator=(const OptionalGuard&) = delete;

 private:
  Mutex* lock_;
};

void bypass_bins(ThreadHeap& heap) noexcept TS_REQUIRES(heap) {
  for (unsigned c = 1; c < class_count; ++c) {
    flush_bin(heap, c);
    set_capacity(heap, c, 0);
  }
  heap.bypassed_refills = bypassed_refills_of_round;
}

// Whether the slab has been in the queue for this many rounds.
bool waited(const ThreadHeap& heap, const Span& slab, std::uint16_t rounds) noexcept {
  return static_cast<std::uint16_t>(heap.round - slab.sparse_round) >= rounds;
}

// It is queued again when half of the blocks that are used now have been freed.
void end_sparse(Span& slab) noexcept {
  slab.sparse_limit = static_cast<std::uint16_t>(used(slab) / 2);
  if (is_listed(slab)) set_fast_free_threshold(slab);
}

// Takes the oldest slab out of the queue, if it has waited for this many rounds; else false. Begins
// its purge if there is something to purge.
bool begin_purge_of_oldest(ThreadHeap& heap, std::uint16_t rounds, SlabPurge& purge,
                           Mutex* lock) noexcept {
  const OptionalGuard guard{lock};
  const HeapHold hold{heap};
  if (heap.first_sparse == 0) return false;
  Span& slab = queued_slab(heap.first_sparse);
  if (!waited(heap, slab, rounds)) return false;
  unqueue_sparse_slab(heap, slab);
  purge.to_purge = 0;
  if (is_sparse(slab)) begin_purge(heap, slab, purge);
  if (purge.to_purge == 0) end_sparse(slab);
  return true;
}

// Purges up to `at_most` of the oldest slabs in the queue that have waited for this many rounds.
// False if no more of them are left.
bool purge_oldest(ThreadHeap& heap, std::uint16_t rounds, std::size_t at_most,
                  Mutex* lock = nullptr) noexcept {
  SlabPurge purge;
  for (; at_most != 0; --at_most) {
    if (!begin_purge_of_oldest(heap, rounds, purge, lock)) return false;
    if (purge.to_purge == 0) continue;
    const std::uint64_t gone = discard(purge);
    const OptionalGuard guard{lock};
    const HeapHold hold{heap};
    end_purge(heap, purge, gone);
    end_sparse(*purge.slab);
    if (used(*purge.slab) == 0) relist_or_retire(heap, *purge.slab);
  }
  return true;
}

// Under a hold: another thread may reclaim a queued slab.
bool has_more(ThreadHeap& heap) noexcept {
  const HeapHold hold{heap};
  return has_to_scavenge(heap);
}

}  // namespace

void scavenge(ThreadHeap& heap) noexcept {
  const std::uint64_t now = os::nanoseconds();
  const std::uint64_t since = now - heap.scavenged_at;
  if (since < min_pause_ns) return;
  const bool is_new_round = now - heap.round_began >= round_ns;
  heap.scavenged_at = now;  // a replaced system function may allocate, and call this again
  if (is_new_round) {
    const HeapHold hold{heap};
    heap.round_began = now;
    ++heap.round;
    bypass_bins(heap);
  }
  // A busy thread takes the page heap's lock only once per round.
  const bool has_surplus = heap.bypassed_refills != 0 && page_heap.purge_some(!is_new_round);
  const std::uint64_t end = now + std::min(since / part_of_time, max_slice_ns);
  while (purge_oldest(heap, rounds_to_wait, slabs_per_look) && os::nanoseconds() < end) continue;
  heap.scavenged_at = os::nanoseconds();
  if (!has_more(heap) && !has_surplus) heap.bypassed_refills = 0;
}

int scavenge_before_wait(ThreadHeap& heap) noexcept {
  if (has_more(heap)) scavenge(heap);
  const HeapHold hold{heap};
  if (!has_to_scavenge(heap)) return -1;
  std::uint64_t pause = min_pause_ns;
  if (!waited(heap, queued_slab(heap.first_sparse), rounds_to_wait)) {
    const std::uint64_t since = os::nanoseconds() - heap.round_began;
    pause = round_ns - std::min(since, round_ns - min_pause_ns);
  }
  return static_cast<int>((pause + min_pause_ns - 1) / min_pause_ns);
}

// Makes up for the growth: purges sparse slabs that waited long enough, or any if there are very
// many, but at most one per page, and a limited number.
void hooks::heap_grows(ThreadHeap& heap, std::size_t pages) noexcept {
  if (is_arena(heap) || purge_delay().is_never()) return;
  // relaxed: it only grows, and any value will do
  const std::size_t in_use = page_map.page_count.load(std::memory_order_relaxed);
  const bool is_surplus = [&] {
    const HeapHold hold{heap};  // against a reclaim of a queued slab
    return heap.sparse_pages >= std::max(min_surplus_pages, in_use / surplus_part);
  }();
  purge_oldest(heap, is_surplus ? 0 : rounds_to_wait, std::min(pages, max_made_up));
}

void hooks::purge_sparse_slabs(ThreadHeap& heap, std::size_t at_most, Mutex* lock) noexcept {
  purge_oldest(heap, 0, at_most, lock);
}

}  // namespace ts::engine
