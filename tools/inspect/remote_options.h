// Options of a running process: copies them into this one's, and writes back the words that differ
// while all threads of the process are stopped.
#pragma once

#include "inspect/command_line.h"
#include "inspect/stopped_threads.h"

namespace ts {

// Reads the options of the process into `current_options`.
class RemoteOptions {
 public:
  RemoteOptions(Process& process, const EngineImage& image);

  // Writes those of `current_options` that have changed, and tells the process to apply them. Ends
  // this process if that is impossible.
  void write();

 private:
  static constexpr std::size_t words = sizeof(Options) / sizeof(OptionBits);

  bool write_words(const StoppedThreads& threads);

  Process& process_;
  const EngineImage& image_;
  std::uint64_t before_[words] = {};
};

}  // namespace ts
