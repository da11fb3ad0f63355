// A plan that is damaged is refused, or runs as if nothing were.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>

#include "native/replay/planned.h"

namespace ts::replay::testing {
namespace {

using Bytes = std::vector<char>;

class DamagedPlan : public ::testing::Test {
 protected:
  DamagedPlan() {
    Recipe recipe;
    recipe.events = 1'000;
    recipe.forks = 1;
    const Planned planned{recipe, {.window = 50}};
    std::ifstream file{planned.folder.plan(), std::ios::binary};
    whole = Bytes{std::istreambuf_iterator<char>{file}, {}};
  }

  // Empty: the plan is accepted.
  std::string refusal(const Bytes& bytes) const {
    {
      std::ofstream file{folder.plan(), std::ios::binary};
      file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    plan::View view;
    plan::Problem problem;
    if (view.open(folder.plan().c_str(), problem) && check_plan(view, problem)) return "";
    return problem.text;
  }

  template <class T>
  static T* at(Bytes& bytes, std::uint64_t offset) {
    return reinterpret_cast<T*>(bytes.data() + offset);
  }

  std::string refusal_of(const std::function<void(plan::Image&)>& change) const {
    Bytes bytes = whole;
    change(*at<plan::Image>(bytes, at<plan::Header>(bytes, 0)->images_offset));
    return refusal(bytes);
  }

  Folder folder;
  Bytes whole;
};

TEST_F(DamagedPlan, TheWholeOneIsAccepted) { EXPECT_EQ(refusal(whole), ""); }

TEST_F(DamagedPlan, ATruncatedOneIsRefused) {
  for (std::size_t bytes = whole.size() - 1; bytes > 4'096; bytes = bytes * 2 / 3) {
    const std::string text = refusal({whole.begin(), whole.begin() + static_cast<long>(bytes)});
    EXPECT_NE(text.find("bytes of the"), std::string::npos) << bytes << text;
  }
}

TEST_F(DamagedPlan, AnotherVersionIsRefused) {
  Bytes bytes = whole;
  at<plan::Header>(bytes, 0)->version = 99;
  EXPECT_NE(refusal(bytes).find("version 99"), std::string::npos);
}

TEST_F(DamagedPlan, CountsThatLieAreRefused) {
  using Image = plan::Image;
  const std::function<void(Image&)> lies[] = {
      [](Image& image) { ++image.totals.calls[0]; },
      [](Image& image) { --image.totals.bytes[3]; },
      [](Image& image) { image.threads = 1'000'000'000; },
      [](Image& image) { ++image.threads; },
      [](Image& image) { --image.threads; },
      [](Image& image) { image.operations = ~std::uint64_t{0}; },
      [](Image& image) { image.operations = 3; },
      [](Image& image) { image.epochs *= 2; },
      [](Image& image) { --image.epochs; },
      [](Image& image) { --image.runs; },
      [](Image& image) { image.runs = ~std::uint64_t{0} / 8; },
      [](Image& image) { image.operations_offset += 8; },
      [](Image& image) { image.runs_offset = 12; },
      [](Image& image) { image.epochs_offset = ~std::uint64_t{7}; },
      [](Image& image) { image.slots = 2; },
      [](Image& image) { image.slots = plan::none; },
      [](Image& image) { ++image.live_bytes; },
      [](Image& image) { ++image.live_objects; },
      [](Image& image) { ++image.peak_live_bytes; },
      [](Image& image) { ++image.ends; },
      [](Image& image) { ++image.inherited_bytes; },
      [](Image& image) { image.parent = 0; },
      [](Image& image) {
        image.times_offset = image.operations_offset;
        image.operations *= 9;
      },
  };
  for (std::size_t i = 0; i < std::size(lies); ++i) EXPECT_NE(refusal_of(lies[i]), "") << i;
}

// Whatever one bit of it is, it is noticed, or it means nothing. That it means nothing can be told:
// the plan is as right as before. What would mean something would be a race or a wait for ever.
TEST_F(DamagedPlan, NoBitOfAnOperationCanBeWrongUnnoticed) {
  const plan::Image image = *at<plan::Image>(whole, at<plan::Header>(whole, 0)->images_offset);
  std::mt19937_64 random{1};
  int refused = 0;
  constexpr int tries = 1'000;
  for (int i = 0; i < tries; ++i) {
    Bytes bytes = whole;
    const std::uint64_t thread = random() % image.threads;
    const auto row = *at<plan::Thread>(bytes, image.threads_offset + thread * sizeof(plan::Thread));
    if (row.operations == 0) continue;
    auto* const operation = at<plan::Operation>(bytes, image.operations_offset) +
                            row.first_operation + random() % row.operations;
    const std::uint64_t bit = random() % 128;
    reinterpret_cast<unsigned char*>(operation)[bit / 8] ^=
        static_cast<unsigned char>(1 << bit % 8);
    refused += refusal(bytes).empty() ? 0 : 1;
  }
  // Alignments of blocks that are not aligned, sizes of frees, turns and slots that are not read.
  EXPECT_GT(refused, tries / 2);
}

TEST_F(DamagedPlan, RandomBytesDoNoHarm) {
  std::mt19937_64 random{2};
  int refused = 0;
  for (int i = 0; i < 500; ++i) {
    Bytes bytes = whole;
    for (int j = 0; j < 8; ++j) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    refused += refusal(bytes).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace ts::replay::testing
