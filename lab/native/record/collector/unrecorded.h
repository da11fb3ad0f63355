// Finds programs that ran and were not recorded.
//
// The loader ignores LD_PRELOAD silently, and a trace that lacks half of a run looks like any
// other. Processes are sampled from time to time; one that is shorter-lived, and ends as another
// process's child, is not noticed.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "launch/tree_end.h"
#include "record/collector/collector.h"

namespace ts::record {

class Unrecorded {
 public:
  // Checks all our descendants.
  void scan(ProcessTree& tree, Collector& collector);

  // A child of ours that has ended and has not been reaped.
  void check_ended(pid_t pid, const Collector& collector);

  // The names of their files, without directories.
  const std::vector<std::string>& programs() const { return programs_; }

 private:
  void add(const std::string& name);

  std::map<pid_t, std::string> suspects_;  // and their files, as last seen
  std::vector<std::string> programs_;
};

}  // namespace ts::record
