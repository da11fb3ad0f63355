// Sampling for the heap profile: each malloc is sampled with probability 1 - exp(-block /
// interval), independently of its call stack. Over all bytes, the samples thus form a Poisson
// process with `interval` as its mean distance. Neither malloc nor free has an extra instruction
// for it.
//
// malloc pops from a cache bin until that is empty. While a heap samples, free pushes into a second
// bin of the class, its sampling bin: the heap's own number then has sampling_bit, and an own
// block's entry XORed with it is the offset of that bin. So mallocs only drain the first bin,
// and its refills know how many there were. (If frees filled it as well, refills would follow net
// growth only: a call site whose blocks are freed at once would be sampled in place of one whose
// blocks stay.)
//
// A sampling window is the list of blocks that a refill gives malloc: no sample falls into it.
//
// - A refill takes the whole sampling bin, or blocks of slabs, but at most as many as there are
//   mallocs before the next sample (until_sample, a geometric number). The malloc after them is
//   the sample.
// - Blocks that leave the bin in another way are added to until_sample (flush_bin).
// - Large blocks are sampled independently.
// - Any thread may set and clear sampling_bit. malloc and free of the heap's own thread read it
//   once each, and work with either value; nothing else depends on it.
//
//   allocate_slow -> hooks::allocate_sampled
//       -> take_whole_window
//       -> allocate_while_sampling -> take_window -> refill or take_sampling_bin, keep_at_most
//                                  -> allocate_sample (sample_heap.h)
//   release_slow -> hooks::release_sampled -> forget_sample (samples.h)
//   set_sampling_interval -> each heap's sampling_bit (sampling_switch.h)
#pragma once

#include <algorithm>
#include <array>

#include "core/cache_bins.h"
#include "core/current_heap.h"
#include "features/profile/sampling_switch.h"

namespace ts::engine {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
static_assert(offsetof(ThreadHeap, sampling_bins) == offsetof(ThreadHeap, bins) + sampling_bit);
#pragma GCC diagnostic pop

// The fewest blocks of a window from the sampling bin, because each window costs a slow path. If
// there are fewer, slabs provide them.
constexpr auto least_windows = [] {
  constexpr std::size_t most_blocks = 32;
  std::array<std::uint8_t, class_count> windows{};
  for (unsigned c = 1; c < class_count; ++c) {
    const std::size_t blocks = bin_bytes / size_classes[c].block_bytes;
    windows[c] = static_cast<std::uint8_t>(std::clamp<std::size_t>(blocks, 1, most_blocks));
  }
  return windows;
}();

// At most a quarter of the bin: if the bin is small, more blocks would only overflow it.
inline std::uint32_t least_window(const ThreadHeap& heap, unsigned size_class) noexcept {
  const std::uint32_t part = heap.capacities[size_class] / 4U;
  return std::max(std::min<std::uint32_t>(least_windows[size_class], part), std::uint32_t{1});
}

// A list of blocks with keys.
struct Window {
  Block* first = nullptr;
  std::uint32_t count = 0;
};

// Fills the bin with all blocks of the list but the first; returns that one, without its key.
[[gnu::always_inline]] inline void* hand_out(ThreadHeap& heap, unsigned size_class,
                                             Window window) noexcept {
  CacheBin& bin = heap.bins[size_class];
  bin.head = window.first->next;
  std::atomic_signal_fence(std::memory_order_release);  // cache_bins.h, counted_blocks
  bin.capacity_left = heap.capacities[size_class] - static_cast<std::int32_t>(window.count - 1);
  heap.until_sample[size_class] -= window.count;
  return clear_key(window.first);
}

// Takes the whole sampling bin, if it has enough blocks and no sample is near; else null.
[[gnu::always_inline]] inline void* take_whole_window(ThreadHeap& heap,
                                                      unsigned size_class) noexcept {
  Block* const first = heap.sampling_bins[size_class].head;
  const auto count = static_cast<std::uint32_t>(counted_in_sampling_bin(heap, size_class));
  const bool is_window = first != nullptr && heap.bins[size_class].head == nullptr &&
                         count >= least_window(heap, size_class) &&
                         count < heap.until_sample[size_class] && has_key(first) &&
                         heap.drawn_interval == sampling_interval.load(std::memory_order_relaxed);
  if (!is_window) [[unlikely]]
    return nullptr;
  set_sampling_bin(heap, size_class, nullptr, 0, heap.capacities[size_class]);
  return hand_out(heap, size_class, {first, count});
}

}  // namespace ts::engine
