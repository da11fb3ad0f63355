#include "features/profile/sampling.h"

#include <algorithm>

#include "base/exponential.h"
#include "core/deferred_work.h"
#include "core/hooks.h"
#include "core/refill.h"
#include "core/span_supply.h"
#include "features/profile/sample_heap.h"
#include "features/profile/sampling_switch.h"
#include "features/profile/stranded_bytes.h"

namespace ts::engine {
namespace {

// For a heap that sees sampling_bit but no interval: it was not visible yet, or is 0 again.
constexpr std::uint32_t no_sample_near = std::uint32_t{1} << 31;

// Draws which malloc is the next sample, counted from 1: with p = 1 - exp(-x), the integer part of
// an exponential number of rate x is geometric.
std::uint32_t draw(ThreadHeap& heap, std::size_t block_bytes) noexcept {
  if (heap.drawn_interval == 0) [[unlikely]]
    return no_sample_near;
  const double mallocs = exponential_of(next_random(heap)) *
                         static_cast<double>(heap.drawn_interval) /
                         static_cast<double>(block_bytes);
  return 1 + static_cast<std::uint32_t>(mallocs);
}
static_assert(37 * max_sampling_interval / 16 < std::uint64_t{1} << 32, "a draw has 32 bits");

// ---- bins ----

// The last of the first `count` blocks of a list, all of which must have their keys; null if there
// are fewer: the list is damaged.
Block* last_of(Block* first, std::uint32_t count) noexcept {
  for (Block* last = first;; last = last->next) {
    if (is_below(address_of(last), page_map.lowest_block) || !has_key(last)) return nullptr;
    if (--count == 0) return last;
  }
}

// The window of a list that has `count` blocks; at least one, as a call may be interrupted between
// the two stores.
Window window_of(Block* first, std::int32_t count) noexcept {
  if (first == nullptr) return {};
  return {first, static_cast<std::uint32_t>(std::max(count, 1))};
}

// Takes the whole sampling bin, which accepts blocks again.
Window take_sampling_bin(ThreadHeap& heap, unsigned size_class) noexcept {
  const Window window =
      window_of(heap.sampling_bins[size_class].head, counted_in_sampling_bin(heap, size_class));
  set_sampling_bin(heap, size_class, nullptr, 0, heap.capacities[size_class]);
  if (window.first == nullptr || has_key(window.first)) [[likely]]
    return window;
  report_damage(size_class, window.first);
  return {};
}

// Refills from slabs. The sampling bin may keep its blocks: they are fewer than a window.
Window take_from_slabs(ThreadHeap& heap, unsigned size_class) noexcept {
  Block* const first = fill_bin(heap, size_class);
  const HeapHold hold{heap};
  const Window window = window_of(first, 1 + counted_blocks(heap, size_class));
  if (first != nullptr)
    first->next = first_block(heap.bins[size_class]);  // a bypassed bin did not link it
  drop_bin(heap, size_class);
  if (heap.has_sampling_bins) set_sampling_capacity(heap, size_class, heap.capacities[size_class]);
  return window;
}

// Puts blocks that belong to no window yet before those of the sampling bin.
void put_into_sampling_bin(ThreadHeap& heap, unsigned size_class, Window rest) noexcept {
  const Window others =
      window_of(heap.sampling_bins[size_class].head, counted_in_sampling_bin(heap, size_class));
  if (others.first != nullptr) {
    Block* const last = last_of(rest.first, rest.count);
    if (last == nullptr) [[unlikely]]
      return report_damage(size_class, rest.first);
    last->next = others.first;
  }
  set_sampling_bin(heap, size_class, rest.first,
                   static_cast<std::int32_t>(rest.count + others.count),
                   heap.capacities[size_class]);
}

// Cuts a window after `most` blocks; the rest goes to the sampling bin.
Window keep_at_most(ThreadHeap& heap, unsigned size_class, Window window,
                    std::uint32_t most) noexcept {
  if (window.count <= most) return window;
  Block* const last = last_of(window.first, most);
  if (last == nullptr) [[unlikely]] {
    report_damage(size_class, window.first);
    return {};
  }
  if (last->next != nullptr)
    put_into_sampling_bin(heap, size_class, {last->next, window.count - most});
  last->next = nullptr;
  return {window.first, most};
}

// Gives malloc a window that ends before the next sample.
[[gnu::noinline]] void* take_window(ThreadHeap& heap, unsigned size_class) noexcept {
  const std::uint32_t most = heap.until_sample[size_class] - 1;
  const auto least = static_cast<std::int32_t>(least_window(heap, size_class));
  Window window;
  if (heap.bins[size_class].head == nullptr && counted_in_sampling_bin(heap, size_class) >= least)
    window = take_sampling_bin(heap, size_class);
  if (window.first == nullptr)
    window = take_from_slabs(heap, size_class);  // reports blocks still in the bin
  if (heap.has_sampling_bins) [[likely]] {       // unless the refill ended sampling
    if (window.first == nullptr) window = take_sampling_bin(heap, size_class);
    window = keep_at_most(heap, size_class, window, most);
  }
  void* const p = window.first != nullptr ? hand_out(heap, size_class, window) : out_of_memory();
  // After hand_out(), because this may bypass the bin.
  if (has_deferred_work(heap)) [[unlikely]]
    do_deferred_work();
  return p;
}

// The interval changed: redraws all counts, which is correct because the past does not matter.
[[gnu::cold]] void begin_interval(ThreadHeap& heap, std::uint64_t interval) noexcept {
  heap.has_sampling_bins = true;
  bypass_or_open_all(heap);
  heap.drawn_interval = interval;
  std::ranges::fill(heap.until_sample, 0U);
}

// A thread takes one sample at a time: malloc in a signal handler is not sampled meanwhile. After a
// longjmp out of it, the depth stays too high until this many others were passed over.
constexpr std::uint32_t max_passed_over = 64;

// Samples a malloc; null if it should proceed as any other. Its placeholder comes from the next
// window, and becomes the result itself if there is no room for the sample.
void* take_sample(ThreadHeap& heap, std::size_t bytes, unsigned size_class,
                  const void* caller) noexcept {
  if (heap.sampling_depth != 0 && ++heap.sampling_depth < max_passed_over) return nullptr;
  heap.sampling_depth = 1;
  void* placeholder = nullptr;
  if (has_placeholder(size_classes[size_class].block_bytes, heap.drawn_interval)) {
    ++heap.until_sample[size_class];  // the placeholder does not count as a malloc
    placeholder = take_window(heap, size_class);
    if (placeholder == nullptr) --heap.until_sample[size_class];
  }
  void* const p = allocate_sample(bytes, size_class, heap.drawn_interval, caller, placeholder);
  heap.sampling_depth = 0;
  return p != nullptr ? p : placeholder;
}

[[gnu::noinline]] void* allocate_while_sampling(std::size_t bytes, unsigned size_class) noexcept {
  ThreadHeap& heap = current_heap();
  const std::uint64_t interval = sampling_interval.load(std::memory_order_relaxed);
  if (heap.drawn_interval != interval && interval != 0) [[unlikely]]
    begin_interval(heap, interval);
  const std::size_t block_bytes = size_classes[size_class].block_bytes;
  std::uint32_t& until = heap.until_sample[size_class];
  if (until == 0) until = draw(heap, block_bytes);
  if (until == 1) [[unlikely]] {
    until = draw(heap, block_bytes);
    // All calls from malloc to this one are tail calls.
    const void* const caller = __builtin_return_address(0);
    if (void* const p = take_sample(heap, bytes, size_class, caller); p != nullptr) return p;
    ++until;  // this malloc is not sampled
  }
  if (hooks::has_guard()) [[unlikely]] {
    if (void* const p = hooks::allocate_guarded(size_class); p != nullptr) {
      --until;  // likewise
      return p;
    }
  }
  return take_window(heap, size_class);
}

}  // namespace

// Usually the sampling bin has a whole window, and no sample is near.
void* hooks::allocate_sampled(std::size_t bytes, unsigned size_class) noexcept {
  void* const p = take_whole_window(current_heap(), size_class);
  return p != nullptr ? p : allocate_while_sampling(bytes, size_class);
}

}  // namespace ts::engine
