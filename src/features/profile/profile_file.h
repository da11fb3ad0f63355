// Writes a heap profile: profile.proto of google/pprof, without symbol names.
// docs/formats/profile.md explains its rows. The profile is of this process, or of another one
// whose tables were read (tools/inspect).
#pragma once

#include "features/profile/samples.h"
#include "unwind/unwind.h"

namespace ts::engine {

enum class ProfileKind : std::uint32_t { now, exit, peak, limit };

// What a profile is made of; must not change meanwhile.
struct ProfileSource {
  const SampleRow* rows = nullptr;
  std::uint32_t row_count = 0;
  const std::uint64_t* stacks = nullptr;
  std::uint32_t stack_words = 0;
  // Modules by number; null after the last one.
  const os::Module* (*module)(const void* argument, unsigned number) = nullptr;
  const void* argument = nullptr;
  const char* version = "";  // of the library
  const char* program = "";  // the path of a module that has none
  const char* command = "";
  std::uint64_t process = 0;
  std::uint64_t interval = 0;
  std::uint64_t dropped = 0;
  std::uint64_t unix_ns = 0;      // when the tables were read
  std::uint64_t duration_ms = 0;  // since sampling began
  std::uint64_t age_ms = 0;       // likewise, on the clock of SampleRow::born_ms
  // What the samples do not cover: blocks from before sampling began, or while it was off.
  std::uint64_t began_after_ms = 0;  // since the process began
  std::uint64_t paused_ms = 0;
  std::uint64_t in_use_bytes = 0;  // of all blocks of the program; 0: unknown
  ProfileKind kind = ProfileKind::now;
};

// Sets the times, for samples that were copied at `now_ms`.
inline void set_times(ProfileSource& source, const Samples& copied, std::uint64_t now_ms) noexcept {
  if (copied.began_ms == 0) return;
  source.duration_ms = source.age_ms = now_ms - copied.began_ms;
  source.began_after_ms = copied.began_ms - copied.process_began_ms;
  source.paused_ms =
      copied.paused_ms + (copied.paused_at_ms != 0 ? now_ms - copied.paused_at_ms : 0);
}

// Returns 0, an error of write(2), or ENOMEM. Takes no lock.
int write_profile(const ProfileSource& source, int descriptor) noexcept;

}  // namespace ts::engine
