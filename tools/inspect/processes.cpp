// See processes.h.
#include "inspect/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "front/fail.h"

namespace ts {
namespace {

// Calls `visit(name)` for each subdirectory.
template <class Visit>
void for_each_entry(const char* folder, Visit visit) {
  DIR* const entries = opendir(folder);
  if (entries == nullptr) return;
  while (const dirent* const entry = readdir(entries)) {
    if (*entry->d_name != '.' && entry->d_type == DT_DIR) visit(entry->d_name);
  }
  closedir(entries);
}

// Neither a kernel thread, nor an ended process, nor this one.
bool counts(pid_t pid) {
  if (pid == getpid()) return false;
  char path[64];
  format(path, sizeof path, "/proc/%d/exe", pid);
  char target[1];
  return readlink(path, target, sizeof target) >= 0 || errno != ENOENT;
}

pid_t parent_of(pid_t pid) {
  char path[64];
  format(path, sizeof path, "/proc/%d/stat", pid);
  PieceReader stat{path};
  const char* const line = stat.next('\n');
  const char* const name_end = line != nullptr ? std::strrchr(line, ')') : nullptr;
  return name_end != nullptr ? static_cast<pid_t>(std::strtol(name_end + 4, nullptr, 10)) : 0;
}

void list_tree(pid_t root, List<pid_t>& pids) {
  struct ChildProcess {
    pid_t pid, parent;
  };
  List<ChildProcess> all;
  for_each_entry("/proc", [&](const char* name) {
    const auto pid = static_cast<pid_t>(std::strtol(name, nullptr, 10));
    if (pid > 0) all.add({pid, parent_of(pid)});
  });
  std::size_t next = pids.count();
  pids.add(root);
  for (; next < pids.count(); ++next) {
    const pid_t parent = pids[next];
    for (const ChildProcess& child_process : all) {
      if (child_process.parent == parent && child_process.pid != root && counts(child_process.pid))
        pids.add(child_process.pid);
    }
  }
}

void list_cgroup(const char* folder, List<pid_t>& pids) {
  char path[512];
  format(path, sizeof path, "%s/cgroup.procs", folder);
  PieceReader lines{path};
  if (!lines.is_open()) return;  // not a process, or ended
  while (const char* const line = lines.next('\n')) {
    const auto pid = static_cast<pid_t>(std::strtol(line, nullptr, 10));
    if (pid > 0 && counts(pid)) pids.add(pid);  // 0: of another namespace
  }
  for_each_entry(folder, [&](const char* name) {
    format(path, sizeof path, "%s/%s", folder, name);
    list_cgroup(path, pids);
  });
}

}  // namespace

void Processes::add_cgroup(const char* path) {
  for (const char* const before : {"", "/sys/fs/cgroup/", "/sys/fs/cgroup/memory/"}) {
    Folder folder;
    format(folder.path, sizeof folder.path, "%s%s/cgroup.procs", before, path);
    if (access(folder.path, F_OK) != 0) continue;
    *std::strrchr(folder.path, '/') = '\0';
    groups_.add(folder);
    return;
  }
  fail(exit_missing,
       "%s: no such control group; /proc/PID/cgroup names that of a process, below /sys/fs/cgroup",
       path);
}

void Processes::list(List<pid_t>& pids) const {
  pids.clear();
  for (const pid_t pid : pids_) pids.add(pid);
  for (const pid_t root : trees_) list_tree(root, pids);
  for (const Folder& group : groups_) list_cgroup(group.path, pids);
  std::sort(pids.begin(), pids.end());
  pids.shorten_to(std::unique(pids.begin(), pids.end()));
}

void Processes::list_or_fail(List<pid_t>& pids) const {
  list(pids);
  if (pids.is_empty()) fail(exit_missing, "the control group has no processes");
}

// `anon` in version 2, which includes child groups; `total_rss` in version 1.
std::int64_t Processes::cgroup_anonymous() const {
  if (groups_.count() != 1 || !pids_.is_empty() || !trees_.is_empty()) return -1;
  char path[544];
  format(path, sizeof path, "%s/memory.stat", groups_[0].path);
  PieceReader lines{path};
  while (const char* const line = lines.next('\n')) {
    for (const char* const key : {"anon ", "total_rss "}) {
      if (const std::int64_t bytes = number_after(line, key); bytes >= 0) return bytes;
    }
  }
  return -1;
}

bool Children::begin() {
  (void)std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) fail(exit_missing, "cannot start a process: %s", strerrordesc_np(errno));
  if (child != 0) {
    if (!at_once_) wait_for_all();
    return false;
  }
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int nowhere = is_quiet_ ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
  if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
  return true;
}

void Children::end_child(int status) {
  if (std::fflush(stdout) != 0) status = exit_usage;
  _exit(status);
}

// Ctrl-C is for the children, which may have to finish something, such as sampling.
void Children::wait_for_all() {
  if (at_once_) signal(SIGINT, SIG_IGN);
  int status = 0;
  for (pid_t child; (child = wait(&status)) > 0 || errno == EINTR;) {
    if (child > 0)
      status_ = std::max(status_, WIFEXITED(status) ? WEXITSTATUS(status) : exit_internal);
  }
}

}  // namespace ts
