#include "engine/sweep.h"

#include <bit>

#include "engine/slabs.h"
#include "os/mutex.h"

namespace ts::engine {
namespace {

constinit Mutex sweep_lock;

// A sweep goes through the whole stack; so it begins only where so many granules, and so many for
// each slab that the last one left there, seem worth it.
constexpr std::int32_t sweep_from_granules = 64;
constexpr std::int32_t left_slabs_per_granule = 8;

// Whether so many carved blocks of the slab, and nothing else, have been sent home.
bool have_come_home(const Span& slab, std::uint32_t blocks) noexcept {
  std::uint32_t found = 0;
  for (std::uint32_t first = 0; first < slab.carved; first += 64) {
    const std::uint64_t bits = remote_word_of(&slab, first / 64).load(std::memory_order_relaxed);
    const std::uint32_t left = slab.carved - first;
    if (left < 64 && bits >> left != 0) return false;
    found += static_cast<std::uint32_t>(std::popcount(bits));
  }
  return found == blocks;
}

// Of a slab on the stack of a heap that is held. Where the numbers do not fit together, somebody
// freed what he should not have, or was cut off by a fork; that is for the owner to find.
bool is_sweepable(const Span& slab) noexcept {
  // acquire: pairs with the additions in send(); sees the bits, and what was done to the blocks is
  // over
  const std::uint32_t pending = remote_frees_of(&slab).pending.load(std::memory_order_acquire);
  // acquire: pairs with release_overflow()
  return slab.used.load(std::memory_order_acquire) == pending &&
         slab.free_blocks + pending == slab.carved && have_come_home(slab, pending);
}

void clear_remote_frees(const Span& slab) noexcept {
  // relaxed: whoever frees a block of the slab's next owner got it by way of the page heap's lock
  for (std::uint32_t first = 0; first < slab.carved; first += 64)
    remote_word_of(&slab, first / 64).store(0, std::memory_order_relaxed);
  remote_frees_of(&slab).pending.store(0, std::memory_order_relaxed);
}

// Takes what can be swept out of a heap that is held, and returns it, linked by `next`.
Span* take_sweepable(ThreadHeap& heap) noexcept {
  Span* swept = nullptr;
  Span* first_left = nullptr;
  Span* last_left = nullptr;
  std::int32_t left = 0;
  // acquire: as in drain()
  Span* slab = heap.ready.exchange(nullptr, std::memory_order_acquire);
  while (slab != nullptr) {
    Span* const next = remote_frees_of(slab).next_ready;
    if (is_sweepable(*slab)) {
      clear_remote_frees(*slab);
      take_slab_out(heap, *slab);
      slab->next = swept;
      swept = slab;
    } else {
      (last_left != nullptr ? remote_frees_of(last_left).next_ready : first_left) = slab;
      last_left = slab;
      ++left;
    }
    slab = next;
  }
  if (last_left != nullptr) push_ready(heap, first_left, remote_frees_of(last_left));
  heap.sweepable_granules.store(-left / left_slabs_per_granule, std::memory_order_relaxed);
  return swept;
}

Span* hold_and_take(ThreadHeap& heap) noexcept TS_REQUIRES(sweep_lock) {
  if (!try_hold(heap.holder, Holder::sweeper)) return nullptr;
  Span* const swept = take_sweepable(heap);
  // release: pairs with the begin of the owner's hold
  heap.holder.store(Holder::none, std::memory_order_release);
  return swept;
}

bool has_pending(const ThreadHeap& heap) noexcept {
  return heap.ready.load(std::memory_order_relaxed) != nullptr;
}

// Without a lock, since memory may go back to the system. (If the process forks meanwhile, its child
// never has these slabs again.)
bool give_back(Span* slab) noexcept {
  const bool found = slab != nullptr;
  while (slab != nullptr) {
    Span* const next = slab->next;
    give_slab_back(*slab);
    slab = next;
  }
  return found;
}

}  // namespace

bool HeapHold::begin_after_sweep(std::atomic<Holder>& holder) noexcept {
  do {
    if (holder.load(std::memory_order_relaxed) == Holder::owner) return false;
    const Guard guard{sweep_lock};  // the sweeper has it until its hold ends
  } while (!try_hold(holder, Holder::owner));
  return true;
}

void sweep(ThreadHeap& heap) noexcept {
  if (!has_pending(heap) || !sweep_lock.try_lock()) return;  // the next slab is another occasion
  Span* const swept = hold_and_take(heap);
  sweep_lock.unlock();
  give_back(swept);
}

bool sweep_all() noexcept {
  bool found = false;
  const std::uint32_t count = layout.heap_count.load(std::memory_order_relaxed);
  for (std::uint32_t number = 1; number <= count; ++number) {
    ThreadHeap& heap = *heap_of(number << heap_shift);
    if (!has_pending(heap)) continue;
    sweep_lock.lock();
    Span* const swept = hold_and_take(heap);
    sweep_lock.unlock();
    found |= give_back(swept);
  }
  return found;
}

bool count_sweepable(ThreadHeap& heap, std::uint32_t granules) noexcept {
  const auto more = static_cast<std::int32_t>(granules);
  // relaxed: a guess
  return heap.sweepable_granules.fetch_add(more, std::memory_order_relaxed) + more >=
         sweep_from_granules;
}

void sweep_fork_prepare() noexcept TS_NO_ANALYSIS { sweep_lock.lock_for_fork(); }
void sweep_fork_parent() noexcept TS_NO_ANALYSIS { sweep_lock.unlock_after_fork(); }
void sweep_fork_child() noexcept TS_NO_ANALYSIS { sweep_lock.reset_after_fork(); }

}  // namespace ts::engine
