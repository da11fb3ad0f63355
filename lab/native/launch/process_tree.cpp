// Walking /proc/PID/task/TID/children; see process_tree.h.
#include "launch/process_tree.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>

#include "common/system.h"

namespace ts {

void ProcessTree::require_kernel_support() {
  char path[64];
  format(path, sizeof path, "/proc/self/task/%d/children", getpid());
  if (access(path, R_OK) != 0)
    fail_internal("/proc/PID/task/TID/children, by which processes are found", errno);
}

void ProcessTree::append_children(const char* task_directory) {
  DIR* const tasks = opendir(task_directory);
  if (tasks == nullptr) return;  // it has ended since it was listed
  while (const dirent* task = readdir(tasks)) {
    if (task->d_name[0] == '.') continue;
    char path[PATH_MAX];
    format(path, sizeof path, "%s/%s/children", task_directory, task->d_name);
    PieceReader children{path};
    while (const char* child = children.next(' ')) {
      if (count_ < max_processes)
        processes_[count_++] = std::atoi(child);  // NOLINT: the kernel prints numbers
    }
  }
  closedir(tasks);
}

void ProcessTree::refresh() {
  count_ = 0;
  append_children("/proc/self/task");
  for (std::size_t parent = 0; parent < count_; ++parent) {
    char path[64];
    format(path, sizeof path, "/proc/%d/task", processes_[parent]);
    append_children(path);
  }
}

void ProcessTree::signal_all(int signal) const {
  for (const pid_t process : processes()) kill(process, signal);
}

}  // namespace ts
