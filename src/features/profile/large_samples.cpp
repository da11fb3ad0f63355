#include "features/profile/large_samples.h"

#include "base/exponential.h"
#include "core/colours.h"
#include "core/current_heap.h"
#include "core/hooks.h"
#include "features/profile/samples.h"
#include "os/os.h"

namespace ts::engine {

namespace {

// Whether a sample falls into a block that is `length` mean distances long. A heap counts down to
// its next sample; a thread without one draws at random, which has the same distribution.
bool is_hit(double length) noexcept {
  if (!has_threads_heap()) {
    // relaxed: any number will do
    static constinit std::atomic<std::uint64_t> shared_random{0};
    std::uint64_t state = shared_random.fetch_add(os::nanoseconds(), std::memory_order_relaxed);
    return exponential_of(next_random(state)) < length;
  }
  ThreadHeap& heap = current_heap();
  double& until = heap.until_large_sample;
  if (until == 0) until = exponential_of(next_random(heap));
  const bool is_in = until <= length;
  until = is_in ? 0 : until - length;
  return is_in;
}

}  // namespace

[[gnu::cold]] void hooks::large_block_sampled(void* p, std::size_t bytes,
                                              const void* caller) noexcept {
  const std::size_t block_bytes = usable_large(p);
  const std::uint64_t interval = sampling_interval.load(std::memory_order_relaxed);
  if (interval == 0 || !is_hit(static_cast<double>(block_bytes) / static_cast<double>(interval)))
    return;
  os::UnwoundStack stack;
  take_stack(stack, caller);
  double weight = 0;
  {
    const Guard guard{samples_lock};
    weight = note_sample(p, bytes, block_bytes, interval, stack);
    if (weight == 0) return;
    page_map.spans[page_of(p)].arena.store(sample_mark, std::memory_order_relaxed);
    adapt_interval();
  }
  trace_alloc(p, bytes, weight);
}

void forget_large_sample(Span& span) noexcept {
  span.arena.store(0, std::memory_order_relaxed);
  forget_sample(large_block_of(span));
}

}  // namespace ts::engine
