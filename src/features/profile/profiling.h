// The heap profile as a whole: on, off, and written; by a call of the program, or when the process
// ends. sampling.h has how samples are taken, samples.h what is kept of them.
#pragma once

#include "features/profile/profile_file.h"

namespace ts::engine {

// Samples from now on, so many bytes apart on the mean; 0 stands for 512 KiB. 0, or EINVAL beyond
// max_sampling_interval, ENOMEM without room for the samples. Not within malloc.
int start_profile(std::size_t interval) noexcept;
// Samples no longer. What was sampled stays, and frees of it are noted.
void stop_profile() noexcept;

// Writes the profile to a file that is open: 0, or an error of write(2), or ENOMEM. Not within
// malloc.
int write_profile(int descriptor, ProfileKind kind) noexcept;

// To be called when the process begins, with the options read: if they ask for it, samples, and
// writes the profile at exit. `version` is the library's; `measure` tells how many bytes all blocks
// of the program have, sampled or not.
using BytesInUse = std::uint64_t() noexcept;
void begin_profile(const char* version, BytesInUse* measure) noexcept;

// Whether the options ask for a profile when the hard limit refuses memory, or the soft one is
// passed.
bool profiles_at_limit() noexcept;
// To be called then: writes the profile, once, if so. Not within malloc. The thread's stack may be
// a small one.
void profile_at_limit() noexcept;

}  // namespace ts::engine
