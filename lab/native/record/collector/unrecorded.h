// Programs that ran and were not recorded.
//
// The loader ignores LD_PRELOAD without a word, and a trace that lacks half of a run looks like any
// other. Processes are looked at from time to time; one that lives for less, and ends as another
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
  // Looks at all processes below us.
  void look(ProcessTree& tree, Collector& collector);

  // A child of ours that has ended and has not been waited for.
  void look_at_ended(pid_t pid, const Collector& collector);

  // The names of their files, without folders.
  const std::vector<std::string>& programs() const { return programs_; }

 private:
  void add(const std::string& name);

  std::map<pid_t, std::string> suspects_;  // and their files, as seen at the last look
  std::vector<std::string> programs_;
};

}  // namespace ts::record
