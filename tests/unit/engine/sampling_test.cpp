// Sampling for the heap profile: unbiased estimates whatever is kept and freed, with errors as
// large as reported; where blocks go; and the effects of switching and of interrupted calls.
#include "features/profile/sampling.h"

#include <cmath>
#include <cstring>

#include "core/heap_lifecycle.h"
#include "core/large_blocks.h"
#include "core/view.h"
#include "features/guard/sampled_guard.h"
#include "features/profile/probes.h"
#include "features/profile/profiling.h"
#include "features/profile/samples.h"
#include "features/profile/stranded_bytes.h"
#include "os/options.h"
#include "unit/engine/fresh_engine.h"

namespace ts::testing {
namespace {

using engine::Estimate;
using engine::samples;

// Totals of a call site over all of its rows.
struct Site {
  Estimate allocated;
  Estimate in_use;
};

Site sums_of(std::uintptr_t call_site) {
  const Guard guard{engine::samples_lock};
  Site site;
  for (std::uint32_t i = 0; i < samples.rows.count; ++i) {
    const engine::SampleRow& row = samples.rows.items[i];
    if (samples.stacks.items[row.stack + 1] != call_site) continue;
    for (const auto& [sum, part] :
         {std::pair{&site.allocated, &row.allocated}, std::pair{&site.in_use, &row.in_use}}) {
      sum->samples += part->samples;
      sum->blocks += part->blocks;
      sum->bytes += part->bytes;
    }
  }
  return site;
}

constexpr std::uintptr_t site_a = 0x1000;
constexpr std::uintptr_t site_b = 0x2000;
constexpr std::uintptr_t site_c = 0x3000;

void* allocate_at(std::uintptr_t call_site, std::size_t bytes) {
  fake_os::answers.call_site = call_site;
  void* const p = engine::Engine{}.allocate(bytes, 16);
  EXPECT_NE(p, nullptr);
  return p;
}

ThreadHeap& begin(std::size_t interval, std::uint64_t seed = 1) {
  EXPECT_TRUE(engine::set_sampling_interval(interval));
  ThreadHeap& heap = make_heap();
  heap.random = seed * 0x1234'5678'9abc'def1;
  return heap;
}

// Mean and standard deviation over many runs.
class Series {
 public:
  void add(double value) {
    ++count_;
    const double delta = value - mean_;
    mean_ += delta / count_;
    squares_ += delta * (value - mean_);
  }
  double mean() const { return mean_; }
  double variance() const { return squares_ / (count_ - 1); }
  double error_of_mean() const { return std::sqrt(variance() / count_); }

 private:
  double count_ = 0;
  double mean_ = 0;
  double squares_ = 0;
};

constexpr std::size_t small = 64;
constexpr std::size_t interval = 4096;
constexpr std::size_t interval_of_placeholders = small * engine::blocks_per_placeholder;

// ---- what is sampled ----

// One site keeps its blocks, another frees them at once, a third comes in bursts. Sampling the net
// flow at refills would attribute all samples to the second site here. (All runs share one heap, so
// each starts in the state that the previous one left.)
void expect_all_sites_are_sampled(std::size_t distance) {
  ThreadHeap& heap = begin(distance);
  const As as{heap};
  Series kept, kept_samples, freed, bursts;
  constexpr int seeds = 1000;
  constexpr int loops = 1000;
  for (int seed = 0; seed < seeds; ++seed) {
    const Site before[] = {sums_of(site_a), sums_of(site_b), sums_of(site_c)};
    std::vector<void*> blocks;
    for (int i = 0; i < loops; ++i) {
      blocks.push_back(allocate_at(site_a, small));
      release(allocate_at(site_b, small));
      if (i % 100 != 0) continue;
      void* burst[20];
      for (void*& p : burst) p = allocate_at(site_c, small);
      for (void* const p : burst) release(p);
    }
    const Site a = sums_of(site_a);
    kept.add(a.in_use.blocks);
    kept_samples.add(static_cast<double>(a.in_use.samples));
    freed.add(sums_of(site_b).allocated.blocks - before[1].allocated.blocks);
    bursts.add(sums_of(site_c).allocated.blocks - before[2].allocated.blocks);
    EXPECT_EQ(sums_of(site_b).in_use.samples, 0U);
    for (void* const p : blocks) release(p);
    EXPECT_EQ(sums_of(site_a).in_use.samples, 0U);
  }
  // Within four standard errors of the mean; with 1,000 seeds that is half a percent or less.
  EXPECT_NEAR(kept.mean(), loops, 4 * kept.error_of_mean());
  EXPECT_NEAR(freed.mean(), loops, 4 * freed.error_of_mean());
  EXPECT_NEAR(bursts.mean(), 200, 4 * bursts.error_of_mean());
  // Samples are independent, so their number is binomial. (20% is four and a half standard errors
  // of the variance over 1,000 seeds, so no build uses fewer.)
  const double p = 1 - std::exp(-static_cast<double>(small) / static_cast<double>(distance));
  EXPECT_NEAR(kept_samples.variance(), loops * p * (1 - p), loops * p * 0.2);
  expect_no_misuse();
  expect_sound();
}

TS_ENGINE_TEST(SamplingTest, KeptAndFreedSitesAreSampledAsOftenAsTheyAllocate) {
  expect_all_sites_are_sampled(interval);
}

TS_ENGINE_TEST(SamplingTest, SoAreTheyWithProxies) {
  expect_all_sites_are_sampled(interval_of_placeholders);
  EXPECT_EQ(samples.placeholder_bytes, 0U);
}

// Over all sizes together, estimates of bytes are right, and 95% intervals from the variance that
// samples report cover the truth that often.
TS_ENGINE_TEST(SamplingTest, IntervalsCoverTheTruth) {
  ThreadHeap& heap = begin(8192, 3);
  const As as{heap};
  int covered = 0;
  Series estimates;
  const int seeds = rounds(1000);
  std::mt19937 random{1};
  for (int seed = 0; seed < seeds; ++seed) {
    std::vector<void*> blocks;
    double truth = 0;
    for (int i = 0; i < 2000; ++i) {
      const std::size_t bytes = 16 + random() % 1000;
      truth += static_cast<double>(bytes);
      blocks.push_back(allocate_at(site_a, bytes));
    }
    double estimate = 0;
    double variance = 0;
    {
      const Guard guard{engine::samples_lock};
      for (std::uint32_t i = 0; i < samples.in_use.count; ++i) {
        const engine::Sample& sample = samples.in_use.items[i];
        const double p = -std::expm1(-static_cast<double>(sample.block_bytes) / 8192);
        const auto bytes = static_cast<double>(sample.requested_bytes);
        estimate += bytes / p;
        variance += bytes * bytes * (1 - p) / (p * p);
      }
    }
    EXPECT_NEAR(estimate, sums_of(site_a).in_use.bytes, estimate * 1e-9);
    covered += std::fabs(estimate - truth) <= 1.96 * std::sqrt(variance) ? 1 : 0;
    estimates.add(estimate / truth);
    for (void* const p : blocks) release(p);
  }
  EXPECT_NEAR(estimates.mean(), 1, 4 * estimates.error_of_mean());
  EXPECT_GE(covered, seeds * 0.93);
  EXPECT_LE(covered, seeds * 0.97);
}

TS_ENGINE_TEST(SamplingTest, RequestedSizesAreKept) {
  ThreadHeap& heap = begin(1);  // each malloc is a sample
  const As as{heap};
  for (const std::size_t bytes : {0UL, 1UL, 17UL, 1000UL, 1025UL, 20000UL, 100000UL, 5UL << 20}) {
    void* const p = allocate_at(site_a, bytes);
    EXPECT_EQ(engine::requested_bytes_of_sample(p), bytes);
    EXPECT_GE(engine::Engine::usable_size(p), bytes);
    EXPECT_TRUE(engine::Engine::owns(p));
    std::memset(p, 1, engine::Engine::usable_size(p));
    release(p);
    EXPECT_EQ(engine::requested_bytes_of_sample(p), 0U);
  }
  EXPECT_EQ(samples.in_use.count, 0U);
  EXPECT_EQ(samples.dropped, 0U);
}

TS_ENGINE_TEST(SamplingTest, LargeBlocksAreSampledByThemselves) {
  ThreadHeap& heap = begin(std::size_t{1} << 20, 5);
  const As as{heap};
  Series blocks_seen;
  constexpr std::size_t bytes = 200'000;
  for (int seed = 0; seed < rounds(300); ++seed) {
    std::vector<void*> blocks;
    for (int i = 0; i < 50; ++i) blocks.push_back(allocate_at(site_a, bytes));
    blocks_seen.add(sums_of(site_a).in_use.blocks);
    for (void* const p : blocks) release(p);
    EXPECT_EQ(sums_of(site_a).in_use.samples, 0U);
  }
  EXPECT_NEAR(blocks_seen.mean(), 50, 4 * blocks_seen.error_of_mean());
}

TS_ENGINE_TEST(SamplingTest, LargeBlocksThatGrowAreAllocatedAnew) {
  ThreadHeap& heap = begin(1);
  const As as{heap};
  void* p = allocate_at(site_a, 100'000);
  fake_os::answers.call_site = site_b;
  ASSERT_TRUE(engine::resize_large(p, 150'000));
  EXPECT_EQ(sums_of(site_a).in_use.samples, 0U);
  EXPECT_EQ(sums_of(site_b).in_use.bytes, 150'000);
  release(p);
  p = allocate_at(site_a, 1 << 20);
  fake_os::answers.call_site = site_b;
  void* const moved = engine::move_large(p, 3 << 20);
  if (moved != nullptr) {
    EXPECT_EQ(sums_of(site_a).in_use.samples, 0U);
    EXPECT_EQ(sums_of(site_b).in_use.bytes, 3 << 20);
    p = moved;
  }
  release(p);
  EXPECT_EQ(samples.in_use.count, 0U);
}

// ---- where blocks go ----

TS_ENGINE_TEST(SamplingTest, FreePushesIntoTheSamplingBin) {
  ThreadHeap& heap = begin(engine::max_sampling_interval);
  const As as{heap};
  void* const p = allocate_at(site_a, small);
  const unsigned c = class_for(small);
  const std::size_t in_bin = list_length(heap.bins[c].head);
  release(p);
  EXPECT_EQ(heap.sampling_bins[c].head, p);
  EXPECT_EQ(list_length(heap.bins[c].head), in_bin);
  for (std::size_t i = 0; i < in_bin; ++i) EXPECT_NE(allocate_at(site_a, small), p);
  EXPECT_EQ(heap.bins[c].head, nullptr);
}

// Each malloc either counts down to the next sample, or its block is still there.
TS_ENGINE_TEST(SamplingTest, EachMallocPassesOnce) {
  ThreadHeap& heap = begin(engine::max_sampling_interval);
  const As as{heap};
  const unsigned c = class_for(small);
  std::mt19937 random{2};
  std::vector<void*> blocks;
  blocks.push_back(allocate_at(site_a, small));
  const auto to_pass = [&] {
    return heap.until_sample[c] + static_cast<std::uint32_t>(engine::counted_blocks(heap, c));
  };
  const std::uint32_t at_first = to_pass() + 1;
  std::uint32_t mallocs = 1;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 100 == 0) flush_bin_of(heap, c);
    if (random() % 2 == 0 || blocks.empty()) {
      blocks.push_back(allocate_at(site_a, small));
      ++mallocs;
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      release(blocks.back());
      blocks.pop_back();
    }
    ASSERT_EQ(to_pass() + mallocs, at_first);
  }
}

// Bins that scavenging bypasses stay empty: a refill returns one block, whose link belongs to its
// slab.
TS_ENGINE_TEST(SamplingTest, AClosedBinIsHandedOutAlone) {
  ThreadHeap& heap = begin(engine::max_sampling_interval);
  const As as{heap};
  const unsigned c = class_for(small);
  std::vector<void*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(allocate_at(site_a, small));
  for (void* const p : blocks) release(p);
  for (int i = 0; i < 20; ++i) {
    {
      const engine::HeapHold hold{heap};
      for (unsigned k = 1; k < engine::class_count; ++k) {
        flush_bin(heap, k);
        engine::set_capacity(heap, k, 0);
      }
    }
    heap.bypassed_refills = 2;
    blocks[i] = allocate_at(site_a, small);
    EXPECT_EQ(heap.bins[c].head, nullptr);
    EXPECT_EQ(engine::counted_blocks(heap, c), 0);
    expect_sound();
  }
  heap.bypassed_refills = 0;
  for (int i = 0; i < 20; ++i) release(blocks[i]);
  flush_heap(heap);
  EXPECT_EQ(heap.slabs[c], 0U);
}

// ---- placeholders ----

std::size_t used_blocks(const ThreadHeap& heap, std::size_t bytes) {
  const unsigned c = class_for(bytes);
  std::size_t used = 0;
  engine::page_heap.for_each([&](const engine::Span& span) {
    const bool is_ours = span.state == engine::SpanState::slab && span.size_class == c &&
                         engine::heap_of(engine::span_entry(span)) == &heap;
    used += is_ours ? used_by(span) : 0;
  });
  return used - list_length(heap.bins[c].head) - list_length(heap.sampling_bins[c].head);
}

TS_ENGINE_TEST(SamplingTest, AProxyStandsWhereItsSampleWouldBe) {
  ThreadHeap& heap = begin(interval_of_placeholders);
  const As as{heap};
  std::vector<void*> blocks;
  while (samples.in_use.count < 10) blocks.push_back(allocate_at(site_a, small));
  EXPECT_EQ(used_blocks(heap, small), blocks.size());
  EXPECT_EQ(samples.placeholder_bytes, 10 * small);
  const HeapMeasures measures = engine::measure();
  const std::size_t live = measures.segment_bytes - measures.free_bytes - measures.waiting_bytes;
  EXPECT_EQ(live, blocks.size() * small);
  for (void* const p : blocks) release(p);
  EXPECT_EQ(samples.placeholder_bytes, 0U);
  EXPECT_TRUE(collect_from(heap));
  EXPECT_EQ(used_blocks(heap, small), 0U);
  flush_heap(heap);
  EXPECT_EQ(heap.slabs[class_for(small)], 0U);
}

TS_ENGINE_TEST(SamplingTest, BlocksThatAreLargeForTheIntervalHaveNoProxy) {
  ThreadHeap& heap = begin(interval_of_placeholders);
  const As as{heap};
  std::vector<void*> blocks;
  while (samples.in_use.count < 10) blocks.push_back(allocate_at(site_a, small + 1));
  EXPECT_EQ(samples.placeholder_bytes, 0U);
  for (void* const p : blocks) release(p);
}

TS_ENGINE_TEST(SamplingTest, ProxiesOfThreadsThatEndedAreFreedByOthers) {
  ThreadHeap& heap = begin(interval_of_placeholders);
  ThreadHeap& other = make_heap();
  std::vector<void*> blocks;
  {
    const As as{heap};
    while (samples.in_use.count < 10) blocks.push_back(allocate_at(site_a, small));
  }
  abandon(heap, true);
  for (void* const p : blocks) release(other, p);
  flush_heap(other);
  EXPECT_EQ(samples.placeholder_bytes, 0U);
  engine::collect_abandoned(1);
  EXPECT_EQ(heap.slabs[class_for(small)], 0U);
}

// One block in sixteen stays, all from one site, which strands all the free bytes next to them.
TS_ENGINE_TEST(SamplingTest, WhatASitePinsIsTheFreeRoomOfItsSlabs) {
  ThreadHeap& heap = begin(interval_of_placeholders, 9);
  const As as{heap};
  Series pinned;
  std::mt19937 random{9};
  for (int seed = 0; seed < rounds(200); ++seed) {
    std::vector<void*> kept;
    std::vector<void*> freed;
    for (int i = 0; i < 20'000; ++i) {
      const bool stays = random() % 16 == 0;
      (stays ? kept : freed).push_back(allocate_at(stays ? site_a : site_b, small));
    }
    for (void* const p : freed) release(p);
    flush_heap(heap);
    double truth = 0;
    engine::page_heap.for_each([&](const engine::Span& span) {
      if (span.state == engine::SpanState::slab &&
          engine::heap_of(engine::span_entry(span)) == &heap)
        truth += static_cast<double>(span.pages * engine::page_bytes - used_by(span) * small);
    });
    double estimate = 0;
    {
      const Guard guard{engine::samples_lock};
      for (std::uint32_t i = 0; i < samples.in_use.count; ++i) {
        const engine::Sample& sample = samples.in_use.items[i];
        engine::SampleRow row = samples.rows.items[sample.row];
        ASSERT_NE(sample.placeholder, nullptr);
        const engine::Span* const slab = engine::slab_of(sample.placeholder);
        engine::add_stranded(row, sample, slab, used(*slab));
        EXPECT_NEAR(row.stranded.squares, row.stranded.bytes * row.stranded.bytes, 1);
        estimate += row.stranded.bytes;
      }
    }
    pinned.add(estimate / truth);
    for (void* const p : kept) release(p);
  }
  EXPECT_NEAR(pinned.mean(), 1, 4 * pinned.error_of_mean());
  EXPECT_LT(pinned.error_of_mean(), 0.1);
}

// ---- on and off ----

TS_HEAP_TEST(SamplingTest, SwitchesInTheMiddle) {
  std::mt19937 random{3};
  std::vector<void*> blocks;
  const std::size_t intervals[] = {0, 64, 4096, 0, 1 << 20};
  for (int i = 0; i < rounds(100'000); ++i) {
    if (random() % 500 == 0) {
      ASSERT_TRUE(engine::set_sampling_interval(intervals[random() % 5]));
    }
    if (random() % 2 == 0 || blocks.empty()) {
      blocks.push_back(allocate_at(site_a, random() % 5000));
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      release(blocks.back());
      blocks.pop_back();
    }
  }
  for (void* const p : blocks) release(p);
  EXPECT_EQ(samples.in_use.count, 0U);
  EXPECT_NEAR(samples.live_bytes, 0, 1);
  // After sampling stops, the sampling bins are returned in time.
  engine::set_sampling_interval(0);
  for (int i = 0; i < 100'000 && heap.has_sampling_bins; ++i) {
    blocks.assign(200, nullptr);
    for (void*& p : blocks) p = allocate_at(site_a, 48);
    for (void* const p : blocks) release(p);
    flush_bin_of(heap, class_for(48));
  }
  EXPECT_FALSE(heap.has_sampling_bins);
}

// What a thread may see during a switch: its heap's bit but not yet, or no longer, the interval.
TS_ENGINE_TEST(SamplingTest, AHeapThatHasSeenNoIntervalTakesNoSample) {
  ThreadHeap& heap = begin(interval);
  const As as{heap};
  engine::sampling_interval.store(0);
  for (int i = 0; i < 1000; ++i) allocate_at(site_a, small);
  EXPECT_EQ(sums_of(site_a).allocated.samples, 0U);
  engine::sampling_interval.store(interval);
  for (int i = 0; i < 1000; ++i) allocate_at(site_a, small);
  EXPECT_GT(sums_of(site_a).allocated.samples, 0U);
}

// What a slow path defers to its end may bypass the bins.
TS_ENGINE_TEST(SamplingTest, ATurnIsInItsBinBeforeTheWorkThatClosesIt) {
  ThreadHeap& heap = make_heap();
  ASSERT_TRUE(engine::set_sampling_interval(engine::max_sampling_interval));
  bool was_closed = false;
  for (int i = 0; i < 300; ++i) {
    heap.is_to_scavenge = true;
    heap.round_began = heap.scavenged_at = os::nanoseconds() - 1'000'000'000'000;
    {
      const As as{heap};
      allocate_at(site_a, small);
    }
    was_closed = was_closed || heap.capacities[class_for(small)] == 0;
    expect_sound();
  }
  EXPECT_TRUE(was_closed);
  engine::set_sampling_interval(0);
}

TS_ENGINE_TEST(SamplingTest, HeapsOfAllKindsFollow) {
  ThreadHeap& before = make_heap();
  ASSERT_TRUE(engine::set_sampling_interval(4096));
  ThreadHeap& after = make_heap();
  EXPECT_TRUE(engine::is_sampling(before));
  EXPECT_TRUE(engine::is_sampling(after));
  EXPECT_FALSE(engine::is_sampling(*engine::new_heap(engine::arena_bit)));
  engine::set_sampling_interval(0);
  EXPECT_FALSE(engine::is_sampling(before));
  EXPECT_FALSE(engine::is_sampling(make_heap()));
}

TS_ENGINE_TEST(SamplingTest, OtherThreadsFreeSamples) {
  ThreadHeap& heap = begin(1);
  ThreadHeap& other = make_heap();
  void* p = nullptr;
  {
    const As as{heap};
    p = allocate_at(site_a, small);
  }
  release(other, p);
  EXPECT_EQ(sums_of(site_a).in_use.samples, 0U);
  {
    const As as{engine::ended_heap};
    const As own{heap};
    p = allocate_at(site_a, small);
  }
  {
    const As as{engine::ended_heap};
    release(p);
  }
  EXPECT_EQ(samples.in_use.count, 0U);
}

TS_ENGINE_TEST(SamplingTest, TheOptionStartsAndStops) {
  ThreadHeap& heap = make_heap();
  ASSERT_TRUE(set_option("PROFILE", "64K"));
  engine::Engine{}.follow_options();
  EXPECT_EQ(engine::sampling_interval.load(), 65536U);
  EXPECT_TRUE(engine::is_sampling(heap));
  ASSERT_TRUE(set_option("PROFILE", "on"));
  engine::Engine{}.follow_options();
  EXPECT_EQ(engine::sampling_interval.load(), engine::usual_sampling_interval);
  ASSERT_TRUE(set_option("PROFILE", "off"));
  engine::Engine{}.follow_options();
  EXPECT_EQ(engine::sampling_interval.load(), 0U);
  EXPECT_FALSE(set_option("PROFILE", "50%"));
  EXPECT_FALSE(set_option("PROFILE", "0"));
  EXPECT_FALSE(set_option("PROFILE", "2T"));
}

// Guarded blocks are sampled as well, and their mallocs count down too. If the program asked for no
// profile, a tracer at the probes gets samples without stacks.
TS_HEAP_TEST(SamplingTest, ATracerStartsAndStopsWhatTheProgramDoesNotAskFor) {
  const auto attach = [](std::uint16_t tracers) {
    engine::probe_semaphores.alloc.store(tracers);
    engine::follow_profile_option();
  };
  attach(1);
  EXPECT_TRUE(engine::is_sampling(heap));
  EXPECT_TRUE(engine::set_sampling_interval(1, false, false));  // each malloc
  void* const p = allocate_at(site_a, small);
  EXPECT_EQ(samples.in_use.count, 1U);
  EXPECT_EQ(sums_of(site_a).in_use.samples, 0U);
  release(p);
  EXPECT_EQ(samples.in_use.count, 0U);
  attach(0);
  EXPECT_FALSE(engine::is_sampling(heap));
  // A profile started by the program belongs to it.
  for (const bool comes_first : {true, false}) {
    if (!comes_first) attach(1);
    EXPECT_EQ(engine::start_profile(1), 0);
    attach(1);
    EXPECT_EQ(engine::sampling_interval.load(), 1U);
    release(allocate_at(site_b, small));
    attach(0);
    EXPECT_EQ(engine::sampling_interval.load(), 1U);
    engine::stop_profile();
  }
  EXPECT_EQ(sums_of(site_b).allocated.samples, 2U);
}

TS_ENGINE_TEST(SamplingTest, GuardedBlocksAreHandedOutWhileAHeapSamples) {
  ASSERT_TRUE(set_option("GUARD_SAMPLE", "1"));
  ThreadHeap& heap = begin(4096);
  const As as{heap};
  int guarded = 0;
  Series allocated;
  for (int seed = 0; seed < rounds(100); ++seed) {
    const Site before = sums_of(site_a);
    for (int i = 0; i < 1000; ++i) {
      void* const p = allocate_at(site_a, small);
      guarded += engine::hooks::foreign_bytes(p) != 0 ? 1 : 0;
      release(p);
    }
    allocated.add(sums_of(site_a).allocated.blocks - before.allocated.blocks);
  }
  EXPECT_GT(guarded, 100);
  EXPECT_NEAR(allocated.mean(), 1000, 4 * allocated.error_of_mean());
}

// ---- misuse and lack of memory ----

TEST(SamplingTest, DoubleFreeOfASampleOrIntoASamplingBinIsFound) {
  for (const std::size_t of_samples : {std::size_t{1}, engine::max_sampling_interval}) {
    run_engine_test([of_samples] {
      ThreadHeap& heap = begin(of_samples);
      const As as{heap};
      void* const p = allocate_at(site_a, small);
      release(p);
      release(p);
      expect_misuse(Misuse::double_free, FoundBy::free, p);
    });
  }
}

TS_ENGINE_TEST(SamplingTest, WriteAfterFreeIntoASamplingBinIsFound) {
  ThreadHeap& heap = begin(engine::max_sampling_interval);
  const As as{heap};
  std::vector<void*> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(allocate_at(site_a, small));
  for (void* const p : blocks) release(p);
  std::memset(heap.sampling_bins[class_for(small)].head, 0x41, 16);
  std::vector<fake_os::ReportedMisuse> misuses;
  for (int i = 0; i < 1000 && misuses.empty(); ++i) {
    allocate_at(site_a, small);
    misuses = fake_os::take_misuses();
  }
  ASSERT_EQ(misuses.size(), 1U);
  EXPECT_EQ(misuses[0].kind, Misuse::damaged_list);
}

TS_ENGINE_TEST(SamplingTest, WithoutRoomSamplesAreDroppedAndBlocksAreNot) {
  ThreadHeap& heap = begin(1);
  const As as{heap};
  release(allocate_at(site_a, small));
  fake_os::refuse(fake_os::Call::commit, fake_os::Call::map);
  std::vector<void*> blocks;
  for (std::uintptr_t i = 0; i < 5000; ++i) {
    fake_os::answers.call_site = i << 4;
    if (void* const p = engine::Engine{}.allocate(16, 16); p != nullptr) blocks.push_back(p);
  }
  fake_os::refuse_nothing();
  EXPECT_GT(samples.dropped, 0U);
  EXPECT_GT(blocks.size(), 100U);
  for (void* const p : blocks) release(p);
  EXPECT_EQ(samples.in_use.count, 0U);
}

// The state seen by a malloc within a sample, and after a longjmp out of a signal handler.
TS_ENGINE_TEST(SamplingTest, ASampleWithinASampleIsPassedOverAndOneThatWasLeftIsForgotten) {
  ThreadHeap& heap = begin(1);
  const As as{heap};
  release(allocate_at(site_a, small));
  ASSERT_EQ(sums_of(site_a).allocated.samples, 1U);
  heap.sampling_depth = 1;
  release(allocate_at(site_b, small));
  EXPECT_EQ(sums_of(site_b).allocated.samples, 0U);
  for (int i = 0; i < 1000; ++i) release(allocate_at(site_c, small));
  EXPECT_EQ(heap.sampling_depth, 0U);
  EXPECT_GT(sums_of(site_c).allocated.samples, 800U);
}

// ---- threads and processes ----

TS_ENGINE_TEST(SamplingTest, AbandonedHeapsKeepWhatIsToPass) {
  ThreadHeap& heap = begin(engine::max_sampling_interval);
  {
    const As as{heap};
    release(allocate_at(site_a, small));
  }
  abandon(heap, true);
  engine::collect_abandoned(1);
  EXPECT_EQ(heap.sampling_bins[class_for(small)].head, nullptr);
}

TS_ENGINE_TEST(SamplingTest, TheChildOfAForkSamplesOn) {
  ThreadHeap& heap = begin(64);
  const As as{heap};
  std::vector<void*> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(allocate_at(site_a, small));
  const std::uint32_t in_use = samples.in_use.count;
  engine::fork_prepare();
  engine::fork_child();
  EXPECT_EQ(samples.in_use.count, in_use);
  for (void* const p : blocks) release(p);
  EXPECT_EQ(samples.in_use.count, 0U);
  for (int i = 0; i < 1000; ++i) release(allocate_at(site_b, small));
  EXPECT_GT(sums_of(site_b).allocated.samples, 0U);
}

TS_ENGINE_TEST(SamplingTest, ThePeakIsKept) {
  ThreadHeap& heap = begin(1);
  const As as{heap};
  std::vector<void*> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(allocate_at(site_a, small));
  for (void* const p : blocks) release(p);
  void* const p = allocate_at(site_b, small);
  const Guard guard{engine::samples_lock};
  double at_peak = 0;
  for (std::uint32_t i = 0; i < samples.rows.count; ++i)
    at_peak += samples.rows.items[i].at_peak.bytes;
  EXPECT_NEAR(at_peak, 64'000, 64'000.0 / 32);
  EXPECT_NE(p, nullptr);
}

}  // namespace
}  // namespace ts::testing
