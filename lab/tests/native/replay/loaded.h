// A synthetic trace, loaded as a replay loads it; the file goes when the test goes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "native/replay/synthetic.h"
#include "replay/load.h"

namespace ts::replay::testing {

class Folder {
 public:
  Folder() {
    if (mkdtemp(name_.data()) == nullptr) std::abort();
  }
  ~Folder() {
    unlink(trace().c_str());
    rmdir(name_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string trace() const { return name_ + "/trace"; }

 private:
  std::string name_ = ::testing::TempDir() + "replay-XXXXXX";
};

class Loaded {
 public:
  explicit Loaded(const Recipe& recipe, const plan::LoadSettings& settings = {},
                  bool keep_calls = false)
      : expected{write_synthetic(folder.trace(), recipe, keep_calls)} {
    trace::Problem problem;
    is_right = plan.load(folder.trace().c_str(), settings, problem);
    EXPECT_TRUE(is_right) << problem.text;
  }

  Folder folder;
  std::vector<Expected> expected;
  plan::Plan plan;
  bool is_right = false;
};

}  // namespace ts::replay::testing
