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

// visit(thread, index, operation) for each operation, in the recorded order; the index is that into
// the image's operations and times.
template <class Visit>
void in_recorded_order(const plan::Plan& plan, const plan::Image& image, Visit&& visit) {
  std::vector<std::uint64_t> cursors(image.threads);
  for (std::uint64_t r = 0; r < image.runs; ++r) {
    const plan::Run& run = plan.runs(image)[r];
    for (std::uint32_t i = 0; i < run.operations; ++i) {
      const std::uint64_t index =
          plan.threads(image)[run.thread].first_operation + cursors[run.thread]++;
      visit(run.thread, index, plan.operations(image)[index]);
    }
  }
  for (std::uint32_t t = 0; t < image.threads; ++t) {
    EXPECT_EQ(cursors[t], plan.threads(image)[t].operations);
  }
}

}  // namespace ts::replay::testing
