// Per-thread counts of events that explain the cost of an allocator. In the instrumented builds
// (lib/counted) each count_event() adds to a count of the calling thread. Every call is under `if
// constexpr (counting)`, so that other builds have no instruction for it. libc/counters.cpp decides
// which counts a strategy has and where they are written.
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
  // requests to the kernel
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

// The counts of one thread; they outlive it. Relaxed: they order nothing, and a reader may see one
// event of a running thread without another.
struct alignas(cache_line_bytes) ThreadCounts {
  constexpr explicit ThreadCounts(bool shared = false) noexcept : is_shared{shared} {}

  std::atomic<std::uint64_t> values[event_count] = {};  // written by the owner, read by any thread
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

// Each of these counts but the last belongs to one thread; all later threads share the last.
inline constexpr std::size_t max_counted_threads = 1024;

// Defined in os/event_counts.cpp, which only the instrumented builds have.
extern constinit thread_local ThreadCounts* this_thread_counts;
ThreadCounts& attach_thread_counts() noexcept;

// Adds to the calling thread's count; takes no lock and no memory.
inline void count_event(Event event, std::uint64_t n = 1) noexcept {
  ThreadCounts* const mine = this_thread_counts;
  (mine != nullptr ? *mine : attach_thread_counts()).add(event, n);
}

// The number of threads that have counts, and the counts of each, in the order of their first
// events.
std::size_t counted_threads() noexcept;
const ThreadCounts& counts_of_thread(std::size_t index) noexcept;

// For the child of a fork, called by its only thread: resets all counts to 0.
void reset_event_counts() noexcept;

// During its lifetime, events of the calling thread are not counted, because it is inspecting the
// heap.
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
