// Switches sampling for the heap profile on and off, and sets its interval. sampling.h says how
// samples are taken.
#pragma once

#include "core/current_heap.h"
#include "features/profile/samples.h"

namespace ts::engine {

inline constexpr std::uint64_t max_sampling_interval = std::uint64_t{1} << 30;
inline constexpr std::uint64_t usual_sampling_interval = std::uint64_t{512} << 10;

// Mean distance of samples in bytes; 0: no sampling. relaxed: a thread that reads it late samples a
// little longer as before.
inline constinit Atomic<std::uint64_t> sampling_interval{0};

inline bool is_sampling() noexcept {
  return sampling_interval.load(std::memory_order_relaxed) != 0;
}

// Samples every `bytes` on average, at most max_sampling_interval; 0 stops sampling.
// `is_automatic`: the interval is only the first one, and adapts. False without room for the
// samples. Takes samples_lock.
bool set_sampling_interval(std::uint64_t bytes, bool is_automatic = false,
                           bool with_stacks = true) noexcept;

// To be called after each sample: TSMALLOC_PROFILE=auto keeps to about 2,000 samples a second by an
// interval between 16 KiB and 8 MiB. (Each sample keeps the interval by which it was drawn.)
void adapt_interval() noexcept TS_REQUIRES(samples_lock);

// A random number of the heap's own (its owner's).
std::uint64_t next_random(ThreadHeap& heap) noexcept;
// Advances the state, and returns a random number from it.
std::uint64_t next_random(std::uint64_t& state) noexcept;

// Follows the option PROFILE; if that is `off`, follows tracers that attached to or left the
// probes. Without a lock or a hold.
void follow_profile_option() noexcept;
// To be called occasionally, also within malloc: requests attention if there is something to
// follow.
void request_profile_option() noexcept;

}  // namespace ts::engine
