// Per-thread counts of the instrumented builds (base/event_counts.h). They are static, so that
// counting never allocates; untouched pages cost nothing.
#include "base/event_counts.h"

namespace ts {
namespace {

constexpr std::size_t max_own = max_counted_threads - 1;
constinit ThreadCounts own[max_own];
constinit ThreadCounts of_later_threads{true};
constinit ThreadCounts of_uncounted_scopes{true};

// Threads attached so far.
constinit std::atomic<std::size_t> threads{0};

ThreadCounts& counts_at(std::size_t index) noexcept {
  return index < max_own ? own[index] : of_later_threads;
}

}  // namespace

constinit thread_local ThreadCounts* this_thread_counts = nullptr;

ThreadCounts& attach_thread_counts() noexcept {
  this_thread_counts = &counts_at(threads.fetch_add(1, std::memory_order_relaxed));
  return *this_thread_counts;
}

std::size_t counted_threads() noexcept {
  const std::size_t count = threads.load(std::memory_order_relaxed);
  return count < max_counted_threads ? count : max_counted_threads;
}

const ThreadCounts& counts_of_thread(std::size_t index) noexcept { return counts_at(index); }

void reset_event_counts() noexcept {
  for (std::size_t i = 0; i < counted_threads(); ++i) {
    for (std::atomic<std::uint64_t>& value : counts_at(i).values)
      value.store(0, std::memory_order_relaxed);
  }
  threads.store(0, std::memory_order_relaxed);
  this_thread_counts = nullptr;
}

UncountedScope::UncountedScope() noexcept : before_{this_thread_counts} {
  this_thread_counts = &of_uncounted_scopes;
}

UncountedScope::~UncountedScope() { this_thread_counts = before_; }

}  // namespace ts
