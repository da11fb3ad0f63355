// A synthetic trace with its plan, in files that go when the test goes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "native/replay/synthetic.h"
#include "replay/plan_view.h"
#include "trace/plan/planner.h"

namespace ts::replay::testing {

class Folder {
 public:
  Folder() {
    if (mkdtemp(name_.data()) == nullptr) std::abort();
  }
  ~Folder() {
    for (const std::string& file : {trace(), plan()}) unlink(file.c_str());
    rmdir(name_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string trace() const { return name_ + "/trace"; }
  std::string plan() const { return name_ + "/plan"; }

 private:
  std::string name_ = ::testing::TempDir() + "replay-XXXXXX";
};

class Planned {
 public:
  explicit Planned(const Recipe& recipe, const trace::PlanSettings& settings = {},
                   bool keep_calls = false)
      : expected{write_synthetic(folder.trace(), recipe, keep_calls)},
        summary{trace::write_plan(trace::Reader{folder.trace()}, settings, folder.plan(), false)} {
    plan::Problem problem;
    is_right = view.open(folder.plan().c_str(), problem) && check_plan(view, problem);
    EXPECT_TRUE(is_right) << problem.text;
  }

  Folder folder;
  std::vector<Expected> expected;
  trace::PlanSummary summary;
  plan::View view;
  bool is_right = false;
};

}  // namespace ts::replay::testing
