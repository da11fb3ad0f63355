// The processes that a command line names, by number, as a tree, or as a cgroup; and running work
// for each of them.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "inspect/list.h"

namespace ts {

class Processes {
 public:
  void add(pid_t pid) { pids_.add(pid); }
  void add_tree(pid_t root) { trees_.add(root); }
  // Takes its directory, or its path in a hierarchy. Ends this process if there is no such cgroup.
  void add_cgroup(const char* path);

  bool are_given() const { return !pids_.is_empty() || may_be_several(); }
  // A single process by its number.
  bool is_single() const { return pids_.count() == 1 && !may_be_several(); }
  pid_t first() const { return pids_[0]; }
  // The current processes, by number: those named, and those with memory in trees and cgroups,
  // without this one.
  void list(List<pid_t>& pids) const;
  // Ends this process if there are none.
  void list_or_fail(List<pid_t>& pids) const;
  // The cgroup's anonymous memory from memory.stat; -1 if unknown, or if anything but one cgroup is
  // named.
  std::int64_t cgroup_anonymous() const;

 private:
  struct Folder {
    char path[512];
  };
  bool may_be_several() const { return !trees_.is_empty() || !groups_.is_empty(); }

  List<pid_t> pids_;
  List<pid_t> trees_;
  List<Folder> groups_;
};

// Calls `work(pid, i)` for each process in a child of this one, so that a failure, which the child
// reports, leaves the others alone: one after another, or all at once. `work` returns an exit
// status. Returns the highest.
class Children {
 public:
  explicit Children(bool at_once = false, bool is_quiet = false)
      : at_once_{at_once}, is_quiet_{is_quiet} {}
  template <class Work>
  int run(const List<pid_t>& pids, Work work) {
    for (std::size_t i = 0; i < pids.count(); ++i) {
      if (begin()) end_child(work(pids[i], i));
    }
    wait_for_all();
    return status_;
  }

 private:
  bool begin();  // true in the child
  [[noreturn]] static void end_child(int status);
  void wait_for_all();

  bool at_once_;
  bool is_quiet_;
  int status_ = 0;
};

// What each child leaves for this process; zeros if it left nothing.
template <class T>
class SharedResults {
 public:
  explicit SharedResults(std::size_t count) : count_{count}, bytes_{(count + 1) * sizeof(T)} {
    void* const memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail_internal("memory for what processes have", errno);
    items_ = static_cast<T*>(memory);
  }
  ~SharedResults() { munmap(items_, bytes_); }
  SharedResults(const SharedResults&) = delete;
  SharedResults& operator=(const SharedResults&) = delete;
  T& operator[](std::size_t i) { return items_[i]; }
  T* begin() const { return items_; }
  T* end() const { return items_ + count_; }

 private:
  std::size_t count_;
  std::size_t bytes_;
  T* items_;
};

}  // namespace ts
