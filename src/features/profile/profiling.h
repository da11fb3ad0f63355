// The heap profile as a whole: switching it on and off, and writing it, on request or at exit.
// sampling.h says how samples are taken, samples.h what is kept of them.
#pragma once

#include "features/profile/profile_file.h"

namespace ts::engine {

// Starts sampling, on average every `interval` bytes; 0 means 512 KiB. Returns 0; EINVAL above
// max_sampling_interval; ENOMEM without room for the samples. Not within malloc.
int start_profile(std::size_t interval) noexcept;
// Stops sampling. Existing samples stay, and their frees are still recorded.
void stop_profile() noexcept;

// Writes the profile to an open file: 0, or an error of write(2), or ENOMEM. Not within malloc.
int write_profile(int descriptor, ProfileKind kind) noexcept;

// To be called when the process begins, after reading the options: if they ask for it, starts
// sampling, and writes the profile at exit. `version` is the library's; `measure` returns how many
// bytes all of the program's blocks have, sampled or not.
using BytesInUse = std::uint64_t() noexcept;
void begin_profile(const char* version, BytesInUse* measure) noexcept;

// Whether the options request a profile when the hard limit refuses memory, or the soft one is
// exceeded.
bool profiles_at_limit() noexcept;
// To be called at that point: writes the profile, once, if requested. Not within malloc. The
// thread's stack may be a small one.
void profile_at_limit() noexcept;

}  // namespace ts::engine
