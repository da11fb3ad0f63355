#include "engine/large_samples.h"

#include "base/exponential.h"
#include "engine/current_heap.h"
#include "engine/samples.h"
#include "os/os.h"

namespace ts::engine {

void sample_large(void* p, std::size_t bytes, std::size_t block_bytes,
                  const void* caller) noexcept {
  // Of a thread that has no heap; relaxed: any number will do
  static constinit std::atomic<std::uint64_t> shared_random{0};
  std::uint64_t random = 0;
  if (has_threads_heap()) {
    random = next_random(own_heap());
  } else {
    std::uint64_t state = shared_random.fetch_add(os::nanoseconds(), std::memory_order_relaxed);
    random = next_random(state);
  }
  const std::uint64_t interval = sampling_interval.load(std::memory_order_relaxed);
  const double distance = exponential_of(random) * static_cast<double>(interval);
  if (interval == 0 || distance >= static_cast<double>(block_bytes)) return;
  os::UnwoundStack stack;
  os::unwind(stack, caller);
  const Guard guard{samples_lock};
  if (!note_sample(p, bytes, block_bytes, interval, stack)) return;
  page_map.spans[page_of(p)].used.store(sample_mark, std::memory_order_relaxed);
  adapt_interval();
}

void forget_large_sample(Span& span) noexcept {
  span.used.store(0, std::memory_order_relaxed);
  forget_sample(memory_of(&span));
}

}  // namespace ts::engine
