// Every figure of an analysis, against a slow and obvious second implementation (oracle.h).
#include "trace/analyze/analysis.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <ostream>

#include "analysis/oracle.h"
#include "analysis/random_trace.h"
#include "trace/choose.h"
#include "trace/samples.h"

namespace ts::testing {
namespace {

using trace::Analysis;
using trace::FirstReading;
using trace::Image;
using trace::Reader;
using trace::testing::MemoryFile;

struct Case {
  unsigned seed;
  std::size_t images;
  std::size_t events;
};

void PrintTo(const Case& made, std::ostream* stream) {
  *stream << "seed " << made.seed << ", " << made.images << " images of " << made.events
          << " events";
}

class AnalysisAgainstOracle : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& made = GetParam();
    images_ = RandomTrace{made.seed}.make(made.images, made.events);
    RandomTrace::write(images_, file_.path());
    reader_ = std::make_unique<Reader>(file_.path());
    const Image& image = reader_->images().back();
    survey_ = trace::first_reading(*reader_, image);
    analysis_ = std::make_unique<Analysis>(trace::analyse(*reader_, image, survey_));
    oracle_ = std::make_unique<Oracle>(images_);
  }

  MemoryFile file_;
  std::vector<RandomImage> images_;
  std::unique_ptr<Reader> reader_;
  FirstReading survey_;
  std::unique_ptr<Analysis> analysis_;
  std::unique_ptr<Oracle> oracle_;
};

TEST_P(AnalysisAgainstOracle, Calls) {
  std::vector<std::uint64_t> calls(static_cast<std::size_t>(Kind::count));
  Amount allocations;
  std::uint64_t refused = 0;
  for (const Event& event : oracle_->events()) {
    ++calls[static_cast<std::size_t>(event.kind)];
    if (makes_object(event.kind)) allocations.add(event.size);
    if (event.kind == Kind::refused) refused += event.size;
  }
  EXPECT_EQ(calls, std::vector<std::uint64_t>(analysis_->calls.begin(), analysis_->calls.end()));
  EXPECT_EQ(allocations, analysis_->allocations);
  EXPECT_EQ(refused, analysis_->refused_bytes);
  EXPECT_EQ(survey_.events, oracle_->events().size());
  EXPECT_EQ(analysis_->unknown_frees + analysis_->unknown_resizes, 0U);
}

TEST_P(AnalysisAgainstOracle, PeakAndWhatItIsMadeOf) {
  const std::optional<std::size_t> peak = oracle_->peak();
  ASSERT_EQ(peak.has_value(), survey_.peak_event.has_value());
  if (peak) {
    EXPECT_EQ(*peak, *survey_.peak_event);
    EXPECT_EQ(analysis_->peak_ns, oracle_->events()[*peak].time_ns);
  }
  const auto live = oracle_->live_after(peak ? *peak + 1 : 0);
  EXPECT_EQ(analysis_->at_peak.bytes, Oracle::bytes(live));
  EXPECT_EQ(analysis_->at_peak.objects, live.size());
  EXPECT_EQ(analysis_->inherited_at_peak, oracle_->amount(live, true));
  std::map<std::uint64_t, std::uint64_t> by_size;
  for (const auto& [object, size] : live) ++by_size[size];
  analysis_->sizes.each([&](std::uint64_t size, const trace::SizeCount& count) {
    EXPECT_EQ(count.at_peak, by_size[size]) << size;
    by_size.erase(size);
  });
  EXPECT_TRUE(std::all_of(by_size.begin(), by_size.end(),
                          [](const auto& each) { return each.second == 0; }));
  Amount of_threads;
  for (const trace::ThreadSums& thread : analysis_->threads) {
    of_threads.objects += thread.at_peak.objects;
    of_threads.bytes += thread.at_peak.bytes;
  }
  EXPECT_EQ(of_threads, oracle_->amount(live, false));
}

TEST_P(AnalysisAgainstOracle, WhatIsLeft) {
  const auto left = oracle_->live_after(oracle_->events().size());
  EXPECT_EQ(analysis_->left_own, oracle_->amount(left, false));
  EXPECT_EQ(analysis_->left_inherited, oracle_->amount(left, true));
  std::map<std::uint64_t, Amount> by_size;  // own and inherited objects
  for (const auto& [object, size] : left) {
    (oracle_->is_inherited(object) ? by_size[size].bytes : by_size[size].objects) += 1;
  }
  analysis_->sizes.each([&](std::uint64_t size, const trace::SizeCount& count) {
    EXPECT_EQ(count.left_own, by_size[size].objects) << size;
    EXPECT_EQ(count.left_inherited, by_size[size].bytes) << size;
    EXPECT_EQ(count.live, count.left_own + count.left_inherited) << size;
  });
}

TEST_P(AnalysisAgainstOracle, Lifetimes) {
  trace::Histogram events;
  trace::Histogram ns;
  trace::Histogram bytes;
  for (const Lifetime& lifetime : oracle_->lifetimes()) {
    events.add(lifetime.events, lifetime.size);
    ns.add(lifetime.ns, lifetime.size);
    bytes.add(lifetime.bytes, lifetime.size);
  }
  const auto same = [](const trace::Histogram& one, const trace::Histogram& other) {
    ASSERT_EQ(one.objects(), other.objects());
    ASSERT_EQ(one.highest(), other.highest());
    for (int percent = 0; percent <= 100; ++percent) {
      ASSERT_EQ(one.quantile(percent / 100.0), other.quantile(percent / 100.0)) << percent;
    }
    std::vector<std::uint64_t> octaves;
    one.each_octave([&](std::uint64_t upper, const Amount& amount) {
      octaves.insert(octaves.end(), {upper, amount.objects, amount.bytes});
    });
    std::size_t i = 0;
    other.each_octave([&](std::uint64_t upper, const Amount& amount) {
      ASSERT_LE(i + 3, octaves.size());
      ASSERT_EQ(octaves[i++], upper);
      ASSERT_EQ(octaves[i++], amount.objects);
      ASSERT_EQ(octaves[i++], amount.bytes);
    });
    ASSERT_EQ(i, octaves.size());
  };
  same(events, analysis_->in_events.histogram);
  same(ns, analysis_->in_ns.histogram);
  same(bytes, analysis_->in_bytes.histogram);
}

TEST_P(AnalysisAgainstOracle, LifetimesBySize) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> expected;
  for (const Lifetime& lifetime : oracle_->lifetimes()) {
    // The octave of a value: the least power of two that is not below it.
    const auto octave = [](std::uint64_t value) {
      std::uint64_t upper = value == 0 ? 0 : 1;
      while (upper < value) upper *= 2;
      return upper;
    };
    ++expected[{octave(lifetime.size), octave(lifetime.events)}];
  }
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> found;
  analysis_->in_events.by_size.each(
      [&](std::uint64_t size, std::uint64_t lifetime, const Amount& amount) {
        found[{size, lifetime}] = amount.objects;
      });
  EXPECT_EQ(found, expected);
}

TEST_P(AnalysisAgainstOracle, TemporariesAndFreesAcrossThreads) {
  Amount temporaries;
  Amount crossing;
  Amount own;
  Amount inherited;
  std::map<std::uint32_t, std::uint64_t> foreign;  // by the thread that frees
  std::map<std::uint32_t, std::uint64_t> given;    // by the thread that allocated
  for (std::size_t i = 0; i < oracle_->events().size(); ++i) {
    const Event& event = oracle_->events()[i];
    if (event.kind != Kind::free) continue;
    const std::uint64_t size = oracle_->live_after(i).at(event.object);
    if (oracle_->is_inherited(event.object)) {
      inherited.add(size);
      continue;
    }
    own.add(size);
    const std::uint32_t owner = oracle_->events()[oracle_->birth_of(event.object)].thread;
    if (owner != event.thread) {
      crossing.add(size);
      ++foreign[event.thread];
      ++given[owner];
    }
    if (oracle_->is_temporary(i)) temporaries.add(size);
  }
  EXPECT_EQ(analysis_->frees, own);
  EXPECT_EQ(analysis_->inherited_frees, inherited);
  EXPECT_EQ(analysis_->cross_thread_frees, crossing);
  EXPECT_EQ(analysis_->temporaries, temporaries);
  std::uint64_t of_threads = 0;
  for (std::uint32_t i = 0; i < analysis_->threads.size(); ++i) {
    EXPECT_EQ(analysis_->threads[i].foreign_frees.objects, foreign[i]);
    EXPECT_EQ(analysis_->threads[i].given_away.objects, given[i]);
    of_threads += analysis_->threads[i].temporaries;
  }
  EXPECT_EQ(of_threads, temporaries.objects);
}

TEST_P(AnalysisAgainstOracle, Chains) {
  std::uint64_t steps = 0;
  std::uint64_t grown = 0;
  std::uint64_t shrunk = 0;
  std::uint64_t from_zero = 0;
  std::uint64_t longest = 0;
  std::uint64_t objects = 0;
  std::uint64_t grown_bytes = 0;
  std::uint64_t shrunk_bytes = 0;
  trace::Histogram growth;
  for (std::size_t i = 0; i < oracle_->events().size(); ++i) {
    const Event& event = oracle_->events()[i];
    if (event.kind == Kind::realloc) {
      const std::uint64_t former = oracle_->live_after(i).at(event.object);
      ++steps;
      if (event.size > former) {
        ++grown;
        grown_bytes += event.size - former;
        if (former == 0) ++from_zero;
      } else if (event.size < former) {
        ++shrunk;
        shrunk_bytes += former - event.size;
      }
    }
    if (!makes_object(event.kind)) continue;
    const std::vector<std::uint64_t> sizes = oracle_->sizes_of(event.object);
    if (sizes.size() < 2) continue;
    ++objects;
    longest = std::max<std::uint64_t>(longest, sizes.size() - 1);
    if (sizes.front() > 0) {
      const double ratio =
          static_cast<double>(sizes.back()) / static_cast<double>(sizes.front()) * 1000.0;
      growth.add(static_cast<std::uint64_t>(ratio + 0.5), sizes.back());
    }
  }
  const trace::Chains& chains = analysis_->chains;
  EXPECT_EQ(chains.resizes, steps);
  EXPECT_EQ(chains.grown, grown);
  EXPECT_EQ(chains.shrunk, shrunk);
  EXPECT_EQ(chains.unchanged, steps - grown - shrunk);
  EXPECT_EQ(chains.from_zero, from_zero);
  EXPECT_EQ(chains.longest, longest);
  EXPECT_EQ(chains.lengths.objects(), objects);
  EXPECT_EQ(chains.growth.objects(), growth.objects());
  EXPECT_EQ(chains.growth.highest(), growth.highest());
  EXPECT_EQ(chains.growth.quantile(0.5), growth.quantile(0.5));
  EXPECT_EQ(analysis_->grown_bytes, grown_bytes);
  EXPECT_EQ(analysis_->shrunk_bytes, shrunk_bytes);
}

TEST_P(AnalysisAgainstOracle, Curve) {
  const std::vector<trace::CurvePoint>& curve = analysis_->curve;
  ASSERT_FALSE(curve.empty());
  EXPECT_LE(curve.size(), Analysis::most_points);
  EXPECT_EQ(curve.back().event, oracle_->events().size() - 1);
  std::size_t from = 0;
  for (const trace::CurvePoint& point : curve) {
    const auto live = oracle_->live_after(point.event + 1);
    EXPECT_EQ(point.live_bytes, Oracle::bytes(live));
    EXPECT_EQ(point.live_objects, live.size());
    std::uint64_t highest = 0;
    std::uint64_t latest = 0;
    for (std::size_t i = from; i <= point.event + 1; ++i) {
      highest = std::max(highest, Oracle::bytes(oracle_->live_after(i)));
    }
    for (std::size_t i = 0; i <= point.event; ++i) {
      latest = std::max(latest, oracle_->events()[i].time_ns);
    }
    EXPECT_EQ(point.highest_bytes, highest);
    EXPECT_EQ(point.time_ns, latest);
    from = point.event + 1;
  }
}

TEST_P(AnalysisAgainstOracle, SizesAskedFor) {
  std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> expected;
  for (const Event& event : oracle_->events()) {
    if (makes_object(event.kind)) ++expected[event.size].first;
    if (event.kind == Kind::realloc) ++expected[event.size].second;
  }
  analysis_->sizes.each([&](std::uint64_t size, const trace::SizeCount& count) {
    EXPECT_EQ(count.allocations, expected[size].first);
    EXPECT_EQ(count.resizes, expected[size].second);
    expected.erase(size);
  });
  EXPECT_TRUE(expected.empty());
  EXPECT_TRUE(analysis_->sizes.is_exact());
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (unsigned seed = 1; seed <= 12; ++seed) all.push_back({seed, 1, 60 + 20 * seed});
  for (unsigned seed = 21; seed <= 26; ++seed) all.push_back({seed, 2 + seed % 2, 150});
  all.push_back({99, 1, 1});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Random, AnalysisAgainstOracle, ::testing::ValuesIn(cases()));

// --- what random traces do not show
// ---------------------------------------------------------------

Event allocation(std::uint64_t object, std::uint64_t size, std::uint32_t thread = 0) {
  return {.kind = Kind::malloc, .thread = thread, .object = object, .size = size};
}

Event release(std::uint64_t object, std::uint32_t thread = 0) {
  return {.kind = Kind::free, .thread = thread, .object = object};
}

TEST(Analysis, AnImageWithoutEvents) {
  const MemoryFile file;
  RandomTrace::write({RandomImage{}}, file.path());
  const Reader reader{file.path()};
  const FirstReading found = trace::first_reading(reader, reader.images()[0]);
  const Analysis analysis = trace::analyse(reader, reader.images()[0], found);
  EXPECT_TRUE(analysis.curve.empty());
  EXPECT_EQ(analysis.at_peak, Amount{});
  EXPECT_FALSE(found.peak_event.has_value());
}

TEST(Analysis, ThePeakIsTheFirstOfEqualOnes) {
  const MemoryFile file;
  RandomImage made;
  made.events = {allocation(0, 100), release(0), allocation(1, 100), release(1)};
  RandomTrace::write({made}, file.path());
  const Reader reader{file.path()};
  EXPECT_EQ(trace::first_reading(reader, reader.images()[0]).peak_event, 0U);
}

// More than the points of the curve, and than the pages of every table.
TEST(Analysis, ManyEvents) {
  constexpr std::uint64_t count = 300'000;
  const MemoryFile file;
  {
    trace::Writer writer = trace::Writer(file.path(), true);
    const std::uint32_t image = writer.begin_image({});
    for (std::uint64_t i = 0; i < count; ++i) {
      writer.add(image, allocation(i, 10 + i % 7));
      if (i >= 1000) writer.add(image, release(i - 1000));
    }
    writer.finish();
  }
  const Reader reader{file.path()};
  const FirstReading found = trace::first_reading(reader, reader.images()[0]);
  const Analysis analysis = trace::analyse(reader, reader.images()[0], found);
  EXPECT_EQ(analysis.frees.objects, count - 1000);
  EXPECT_EQ(analysis.left_own.objects, 1000U);
  EXPECT_EQ(analysis.at_peak.objects, 1001U);
  // Each lives for a thousand allocations, with a free after each of them in the steady state, and
  // goes with the free after the last of those.
  EXPECT_EQ(analysis.in_events.histogram.highest(), 2001U);
  EXPECT_LE(analysis.curve.size(), Analysis::most_points);
  EXPECT_GE(analysis.curve.size(), Analysis::most_points / 2);
  EXPECT_EQ(analysis.curve.back().live_objects, 1000U);
}

TEST(ChooseImage, ByNumberOrTheOneWithMostEvents) {
  const MemoryFile file;
  std::vector<RandomImage> images(3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    images[i].image.number = i;
    for (std::uint64_t k = 0; k < (i == 1 ? 9U : 3U); ++k) {
      images[i].events.push_back(allocation(k, 8));
    }
  }
  RandomTrace::write(images, file.path());
  const Reader reader{file.path()};
  EXPECT_EQ(trace::choose_image(reader, std::nullopt, "t").number, 1U);
  EXPECT_EQ(trace::choose_image(reader, 2U, "t").number, 2U);
  EXPECT_THROW(trace::choose_image(reader, 3U, "t"), trace::Error);
}

}  // namespace
}  // namespace ts::testing
