// Sampling for the heap profile: on, off, and how far apart samples are. sampling.h has how they
// are taken.
#pragma once

#include "core/current_heap.h"
#include "features/profile/samples.h"

namespace ts::engine {

inline constexpr std::uint64_t max_sampling_interval = std::uint64_t{1} << 30;
inline constexpr std::uint64_t usual_sampling_interval = std::uint64_t{512} << 10;

// Bytes between two samples, on the mean; 0: none are taken. relaxed: a thread that reads it late
// samples a little longer as it did.
inline constinit Atomic<std::uint64_t> sampling_interval{0};

inline bool is_sampling() noexcept {
  return sampling_interval.load(std::memory_order_relaxed) != 0;
}

// Samples from now on, so many bytes apart on the mean, at most max_sampling_interval; or not, if
// that is 0. `is_automatic`: the interval is the first one, and adapts. False without room for the
// samples. Takes samples_lock.
bool set_sampling_interval(std::uint64_t bytes, bool is_automatic = false,
                           bool with_stacks = true) noexcept;

// To be called when a sample was taken: TSMALLOC_PROFILE=auto keeps to about 2,000 a second, by an
// interval between 16 KiB and 8 MiB. (Each sample keeps the interval by which it was drawn.)
void adapt_interval() noexcept TS_REQUIRES(samples_lock);

// A random number of the heap's own (its owner's).
std::uint64_t next_random(ThreadHeap& heap) noexcept;
// A random number from a state that it changes.
std::uint64_t next_random(std::uint64_t& state) noexcept;

// Follows the option PROFILE; where that is `off`, tracers that were attached to the probes or left
// them. Without a lock or a hold.
void follow_profile_option() noexcept;
// To be called now and then, also within malloc: if there is something to follow, asks for
// attention.
void request_profile_option() noexcept;

}  // namespace ts::engine
