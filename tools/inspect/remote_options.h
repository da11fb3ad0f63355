// The options of a running process: a copy in those of this one, of which the words that differ are
// written back while all threads of the process stand still.
#pragma once

#include "inspect/command_line.h"
#include "inspect/stopped_threads.h"

namespace ts {

// Reads the options of the process into `current_options`.
class RemoteOptions {
 public:
  RemoteOptions(Process& process, const EngineImage& image);

  // Writes those of `current_options` that have changed since, and tells the process to follow. Ends
  // this one where that is impossible.
  void write();

 private:
  static constexpr std::size_t words = sizeof(Options) / sizeof(OptionBits);

  bool write_words(const StoppedThreads& threads);

  Process& process_;
  const EngineImage& image_;
  std::uint64_t before_[words] = {};
};

}  // namespace ts
