#include "features/profile/sampling_switch.h"

#include "core/attention.h"
#include "core/cache_bins.h"
#include "core/hooks.h"
#include "core/page_map.h"
#include "features/profile/probes.h"
#include "features/profile/samples.h"
#include "os/options.h"
#include "os/os.h"

namespace ts::engine {

// ---- random numbers ----

// SplitMix64 (Steele, Lea, Flood, 2014).
std::uint64_t next_random(std::uint64_t& state) noexcept {
  std::uint64_t z = state += 0x9e37'79b9'7f4a'7c15;
  z = (z ^ z >> 30) * 0xbf58'476d'1ce4'e5b9;
  z = (z ^ z >> 27) * 0x94d0'49bb'1331'11eb;
  return z ^ z >> 31;
}

std::uint64_t next_random(ThreadHeap& heap) noexcept {
  if (heap.random == 0) heap.random = os::nanoseconds() ^ std::uint64_t{entry_of_heap(heap)} << 32;
  return next_random(heap.random);
}

namespace {

// Also for heaps that are about to begin, and for abandoned ones. The reciprocals are stored before
// the bit through which free reads them (release; pairs with memory_order_dependent in release()).
void set_bit(ThreadHeap& heap) noexcept TS_REQUIRES(samples_lock) {
  const PageMapEntry self = heap.self.load(std::memory_order_relaxed);
  if ((self & ~sampling_bit) == 0 || is_arena(heap)) return;
  // Only once: after an earlier switch, the thread may still read them. Also if the bit is set: the
  // heap may have been given back and created again since this was called for it.
  for (unsigned c = 1; c < class_count; ++c) {
    if (heap.sampling_bins[c].reciprocal == 0)
      heap.sampling_bins[c].reciprocal = size_classes[c].reciprocal;
  }
  heap.self.fetch_or(sampling_bit, std::memory_order_release);
}

}  // namespace

// Before the thread uses the heap: it samples if others do.
void hooks::heap_begins(ThreadHeap& heap) noexcept {
  // seq_cst: pairs with the fence in set_sampling_interval(). Either this thread sees the interval,
  // or that one sees the heap, which was counted before.
  fence(std::memory_order_seq_cst);
  if (!is_sampling()) [[likely]]
    return;
  const Guard guard{samples_lock};
  if (is_sampling()) set_bit(heap);
}

// ---- the interval by rate ----

namespace {

constexpr std::uint64_t least_automatic = std::uint64_t{16} << 10;
constexpr std::uint64_t most_automatic = std::uint64_t{8} << 20;
constexpr std::uint64_t window_ms = 250;
constexpr std::uint32_t most_in_window = 500;

// Samples since the window began; an automatic interval is adjusted to them.
struct Window {
  bool is_automatic = false;
  std::uint32_t samples = 0;
  std::uint64_t began_ms = 0;
};
constinit Window window TS_GUARDED_BY(samples_lock);

}  // namespace

void adapt_interval() noexcept {
  if (!window.is_automatic) return;
  const std::uint64_t elapsed = os::coarse_milliseconds() - window.began_ms;
  const bool is_over = elapsed >= window_ms;
  if (++window.samples < most_in_window && !is_over) return;
  const std::uint64_t now = sampling_interval.load(std::memory_order_relaxed);
  std::uint64_t next = now;
  if (!is_over && now < most_automatic) next = 2 * now;
  // So few that twice as many would not be too many.
  if (is_over && window.samples * window_ms < most_in_window * elapsed / 3 && now > least_automatic)
    next = now / 2;
  window.samples = 0;
  window.began_ms += elapsed;
  if (now == 0 || next == now) return;
  samples.interval = next;
  sampling_interval.store(next, std::memory_order_relaxed);
}

// ---- on and off ----

bool set_sampling_interval(std::uint64_t bytes, bool is_automatic, bool with_stacks) noexcept {
  const Guard guard{samples_lock};
  if (bytes != 0 && !open_samples()) return false;
  const std::uint64_t now_ms = os::coarse_milliseconds();
  if (bytes != 0 && samples.paused_at_ms != 0) {
    samples.paused_ms += now_ms - samples.paused_at_ms;
    samples.paused_at_ms = 0;
  } else if (bytes == 0 && is_sampling()) {
    samples.paused_at_ms = now_ms;
  }
  window = {is_automatic, 0, now_ms};
  takes_stacks.store(with_stacks, std::memory_order_relaxed);
  samples.are_taken = bytes != 0 && with_stacks;
  if (bytes != 0) samples.interval = bytes;
  sampling_interval.store(bytes, std::memory_order_relaxed);
  fence(std::memory_order_seq_cst);  // pairs with hooks::heap_begins()
  for_each_heap([bytes](ThreadHeap& heap) TS_NO_ANALYSIS {
    if (bytes != 0) return set_bit(heap);
    heap.self.fetch_and(~sampling_bit, std::memory_order_relaxed);  // an arena's is never set
  });
  return true;
}

// ---- the option ----

namespace {

// The option value that was followed last; relaxed: the value is complete in itself.
constinit Atomic<std::uint64_t> followed{0};

// The option's words, by number, and a value that means a tracer.
constexpr std::uint64_t word_off = 0;
constexpr std::uint64_t word_auto = 2;
constexpr std::uint64_t by_tracer = 3;

SizeOption asked_for() noexcept {
  const SizeOption option = current_options.profile;
  return option.bits == word_off && is_traced() ? SizeOption{by_tracer} : option;
}

}  // namespace

void request_profile_option() noexcept {
  if (followed.load(std::memory_order_relaxed) != asked_for().bits) request_attention();
}

void hooks::look_at_heap(ThreadHeap& heap) noexcept {
  if (heap.has_sampling_bins && !is_sampling(heap)) end_heap_sampling(heap);
  request_profile_option();
}

void follow_profile_option() noexcept {
  const SizeOption option = asked_for();
  const std::uint64_t before = followed.exchange(option.bits, std::memory_order_relaxed);
  if (before == option.bits) return;
  const bool is_for_tracer = option.bits == by_tracer;
  if (is_for_tracer && is_sampling()) return;  // started by ts_profile_start()
  if (option.bits == word_off && before == by_tracer &&
      takes_stacks.load(std::memory_order_relaxed))
    return;  // started since; stays
  const std::uint64_t of_word = option.bits == word_off ? 0 : usual_sampling_interval;
  set_sampling_interval(option.is_word() ? of_word : option.number(),
                        option.bits == word_auto || is_for_tracer, !is_for_tracer);
}

}  // namespace ts::engine
