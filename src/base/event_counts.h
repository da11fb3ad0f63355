// Counts of the events that explain the cost of an allocator, by thread. In the counted libraries
// (lib/counted) each count_event() adds to a number of the calling thread's own. Each call stands
// under `if constexpr (counting)`, so that no other build has an instruction for it.
// libc/counters.cpp decides which numbers a strategy has, and where they are written.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/platform.h"

namespace ts {

// Described in docs/formats/counters.md.
enum class Event : std::uint8_t {
  // requests of the program
  allocations,
  frees,
  // requests to the system
  growth_calls,
  growth_bytes,
  trim_calls,
  trimmed_bytes,
  purge_calls,
  purged_bytes,
  // locks
  lock_acquisitions,
  lock_waits,
  lock_parks,
  lock_wait_ns,
  // blocks of the classic heaps
  searches,
  blocks_searched,
  splits,
  merges,
  // strategies
  foreign_frees,
  heaps_created,
  adopted_heaps,
  arenas_created,
  arena_switches,
  cache_hits,
  cache_refills,
  cache_refilled_blocks,
  cache_returns,
  cache_returned_blocks,
  retries,
  // the engine
  bin_refills,
  bin_overflows,
  slabs_created,
  slabs_released,
  remote_frees,
  remote_batches_sent,
  remote_collects,
  spans_reused_dirty,
  spans_clean,
  large_allocations,
  large_moves,
};
inline constexpr std::size_t event_count = static_cast<std::size_t>(Event::large_moves) + 1;

// The numbers of one thread. They outlive it. Relaxed: they order nothing, and a reader may see one
// event of a running thread without another.
struct alignas(cache_line_bytes) ThreadCounts {
  constexpr explicit ThreadCounts(bool shared = false) noexcept : is_shared{shared} {}

  std::atomic<std::uint64_t> values[event_count] = {};  // own writes, any reads
  const bool is_shared;                                 // several threads write

  void add(Event event, std::uint64_t n) noexcept {
    std::atomic<std::uint64_t>& value = values[static_cast<std::size_t>(event)];
    if (is_shared) [[unlikely]] {
      value.fetch_add(n, std::memory_order_relaxed);
    } else {
      value.store(value.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    }
  }
  std::uint64_t operator[](Event event) const noexcept {
    return values[static_cast<std::size_t>(event)].load(std::memory_order_relaxed);
  }
};

// So many threads have numbers of their own; all later ones share the last.
inline constexpr std::size_t max_counted_threads = 1024;

// Defined in os/event_counts.cpp, which only counted libraries have.
extern constinit thread_local ThreadCounts* this_thread_counts;
ThreadCounts& attach_thread_counts() noexcept;

// Adds to the calling thread's number; takes no lock and no memory.
inline void count_event(Event event, std::uint64_t n = 1) noexcept {
  ThreadCounts* const mine = this_thread_counts;
  (mine != nullptr ? *mine : attach_thread_counts()).add(event, n);
}

// How many threads have numbers, and those of one of them, in the order of their first events.
std::size_t counted_threads() noexcept;
const ThreadCounts& counts_of_thread(std::size_t index) noexcept;

// In the child of a fork, called by its only thread: all counts begin at 0.
void reset_event_counts() noexcept;

// While one lives, events of the calling thread are not counted: it inspects the heap.
class UncountedScope {
 public:
  UncountedScope() noexcept;
  ~UncountedScope();
  UncountedScope(const UncountedScope&) = delete;
  UncountedScope& operator=(const UncountedScope&) = delete;

 private:
  ThreadCounts* before_;
};

}  // namespace ts
