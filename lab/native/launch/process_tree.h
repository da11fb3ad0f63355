// The measured program and all that it started, as far as it lives.
//
// Why it exists: memory is summed over the tree, and a timeout must end the whole of it, also what
// has left its process group. `measure` is a child subreaper, so a process whose parent has ended
// becomes our own child and stays in the tree. What it refuses to do: claim a consistent picture.
// The processes run while they are listed, so a listing may miss one that is being born; who must
// reach every process repeats the listing until there is none.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>

namespace ts {

class ProcessTree {
 public:
  // Ends the program when the kernel does not offer /proc/PID/task/TID/children
  // (CONFIG_PROC_CHILDREN).
  static void require_kernel_support();

  // Lists the descendants of this process, parents before children; ended ones that nobody has
  // waited for are among them.
  void refresh();

  std::span<const pid_t> processes() const { return {processes_, count_}; }

  void signal_all(int signal) const;

 private:
  void append_children(const char* task_directory);

  static constexpr std::size_t max_processes =
      4096;  // beyond, sums are too low; ending them all takes more rounds
  std::size_t count_ = 0;
  pid_t processes_[max_processes];
};

}  // namespace ts
