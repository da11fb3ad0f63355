// Measures the cost of a malloc/free pair as the number of free blocks grows, per fit, and for
// comparison that of the textbooks' linear list (linear_list.h) on the same blocks. One thread, one
// heap.
//
// Two patterns, since each by itself flatters some allocator:
//   pair     malloc of a random size, freed at once. The same few blocks are used again and again,
//            so it shows the cost of the search with warm caches.
//   replace  a random live block is freed, then one of a random size allocated. Every step touches
//            memory that was not touched for a long time: the cost with cold caches.
//
// Prints ratios without judging them.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "any_heap.h"
#include "bench/linear_list.h"
#include "programs/support/arguments.h"
#include "programs/support/random.h"

namespace ts::bench {
namespace {

using test::Random;
using testing::AnyHeap;
using testing::Cell;

constexpr std::size_t block_counts[] = {1'000, 10'000, 100'000, 1'000'000};

struct Options {
  std::size_t max_blocks;
  std::size_t max_linear_blocks;
  std::size_t max_bytes;
  std::size_t pairs;
  std::size_t repetitions;
  std::uint64_t seed;
};

// The segment grows by exactly the missing bytes and is never returned, so that all free blocks are
// the ones made here, and none is the remainder of a large piece.
constexpr classic::HeapConfig exact{
    .source = {.kind = classic::SourceKind::sbrk, .growth_bytes = 0},
    .trim_threshold_bytes = classic::never_trim};

// A heap with `blocks` free blocks of random sizes, each between two used ones of random sizes.
struct Scene {
  std::unique_ptr<AnyHeap> heap;
  std::vector<void*> live;

  Scene(const Cell& cell, std::size_t blocks, const Options& options) : heap{cell.make(exact)} {
    Random random{options.seed};
    std::vector<void*> gaps;
    for (std::size_t i = 0; i < blocks; ++i) {
      gaps.push_back(take(random, options));
      live.push_back(take(random, options));
    }
    // In random order: a structure that depends on the order should show that.
    for (std::size_t i = gaps.size(); i > 1; --i) std::swap(gaps[i - 1], gaps[random.below(i)]);
    for (void* gap : gaps) heap->release(gap);
  }

 private:
  void* take(Random& random, const Options& options) const {
    void* const block = heap->allocate(random.between(1, options.max_bytes), min_alignment);
    if (block == nullptr) {
      std::fputs("out of memory while the free blocks were being made\n", stderr);
      std::exit(2);
    }
    return block;
  }
};

// The same blocks in a linear list.
template <Fit fit>
class LinearScene {
 public:
  explicit LinearScene(const Scene& scene)
      : blocks_{blocks_of(*scene.heap)}, copy_{begin(), end()} {
    for (const BlockView& block : blocks_) {
      std::byte* const place = copy_.copy_of(block.payload) - classic::tag_bytes;
      const std::size_t bytes = block.bytes + classic::tag_bytes;
      block.state == BlockState::used ? list_.add_used(place, bytes) : list_.add_free(place, bytes);
    }
    for (void* block : scene.live) live.push_back(copy_.copy_of(block));
  }

  void* allocate(std::size_t bytes) { return list_.allocate(bytes); }
  void release(void* block) { list_.release(block); }
  std::uintptr_t offset(const void* block) const { return copy_.offset(block); }
  std::uintptr_t begin() const { return address_of(blocks_.front().payload) - classic::tag_bytes; }

  std::vector<void*> live;

 private:
  static std::vector<BlockView> blocks_of(AnyHeap& heap) {
    std::vector<BlockView> blocks;
    heap.walk(
        [](const BlockView& block, void* to) {
          static_cast<std::vector<BlockView>*>(to)->push_back(block);
          return true;
        },
        &blocks);
    std::sort(blocks.begin(), blocks.end(),
              [](const BlockView& a, const BlockView& b) { return a.payload < b.payload; });
    return blocks;
  }
  std::uintptr_t end() const { return address_of(blocks_.back().payload) + blocks_.back().bytes; }

  std::vector<BlockView> blocks_;
  LayoutCopy copy_;
  LinearList<fit> list_;
};

// Any heap, with the interface that the patterns use.
struct Ours {
  AnyHeap& heap;
  void* allocate(std::size_t bytes) const { return heap.allocate(bytes, min_alignment); }
  void release(void* block) const { heap.release(block); }
};

// Processor time of this thread: excludes what others run on the machine, as far as possible.
class Stopwatch {
 public:
  double nanoseconds_each(std::size_t times) const {
    return (now() - began_) / static_cast<double>(times);
  }

 private:
  static double now() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
  }

  double began_ = now();
};

std::vector<std::size_t> random_sizes(Random& random, std::size_t count, const Options& options) {
  std::vector<std::size_t> sizes(count);
  for (std::size_t& bytes : sizes) bytes = random.between(1, options.max_bytes);
  return sizes;
}

// Median over the repetitions, after a warm-up that is not counted.
template <class Repetition>
double median_of(std::size_t repetitions, Repetition repetition) {
  repetition();
  std::vector<double> times;
  for (std::size_t i = 0; i < repetitions; ++i) times.push_back(repetition());
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

template <class Heap>
double time_pairs(Heap& heap, std::size_t pairs, const Options& options) {
  Random random{options.seed + 1};
  return median_of(options.repetitions, [&] {
    const std::vector<std::size_t> sizes = random_sizes(random, pairs, options);
    const Stopwatch stopwatch;
    for (const std::size_t bytes : sizes) heap.release(heap.allocate(bytes));
    return stopwatch.nanoseconds_each(pairs);
  });
}

template <class Heap>
double time_replacing(Heap& heap, std::vector<void*>& live, std::size_t times,
                      const Options& options) {
  Random random{options.seed + 2};
  return median_of(options.repetitions, [&] {
    const std::vector<std::size_t> sizes = random_sizes(random, times, options);
    std::vector<std::size_t> places(times);
    for (std::size_t& place : places) place = random.below(live.size());
    const Stopwatch stopwatch;
    for (std::size_t i = 0; i < times; ++i) {
      void*& block = live[places[i]];
      heap.release(block);
      block = heap.allocate(sizes[i]);
    }
    return stopwatch.nanoseconds_each(times);
  });
}

// Each repetition replaces only this small part of the blocks, so that their number stays about the
// same.
std::size_t replacements(std::size_t blocks) { return blocks / 20; }

// The list is timed for about as long, whatever its length.
std::size_t linear_times(std::size_t blocks) {
  return std::max<std::size_t>(2'000'000 / blocks, 10);
}

// Both must choose the same blocks, or the comparison is between different policies. (Not for
// `cached`, where the fit applies only in the central heap.)
template <Fit fit>
void require_same_choices(const Cell& cell, Scene& scene, LinearScene<fit>& linear,
                          const Options& options) {
  if (cell.strategy == "cached") return;
  Random random{options.seed + 3};
  for (int i = 0; i < 50; ++i) {
    const std::size_t bytes = random.between(1, options.max_bytes);
    void* const ours = scene.heap->allocate(bytes, min_alignment);
    void* const theirs = linear.allocate(bytes);
    const bool same = address_of(ours) - linear.begin() == linear.offset(theirs);
    scene.heap->release(ours);
    linear.release(theirs);
    if (same) continue;
    std::fprintf(stderr, "%s and the linear list chose different blocks for %zu bytes\n",
                 cell.name('-').c_str(), bytes);
    std::exit(1);
  }
}

struct Row {
  std::size_t free_blocks;  // at the end
  double nanoseconds;
  double linear_nanoseconds;  // 0: not measured
};

void print_row(std::size_t blocks, const Row& row, double first_nanoseconds) {
  std::printf("%12zu %12zu %10.1f %8.2f", blocks, row.free_blocks, row.nanoseconds,
              row.nanoseconds / first_nanoseconds);
  if (row.linear_nanoseconds > 0) {
    std::printf(" %14.0f %10.1f", row.linear_nanoseconds, row.linear_nanoseconds / row.nanoseconds);
  }
  std::printf("\n");
  std::fflush(stdout);
}

template <Fit fit>
Row measure_pairs(const Cell& cell, std::size_t blocks, const Options& options) {
  Scene scene{cell, blocks, options};
  Ours ours{*scene.heap};
  Row row{0, time_pairs(ours, options.pairs, options), 0};
  if (blocks <= options.max_linear_blocks) {
    LinearScene<fit> linear{scene};
    require_same_choices(cell, scene, linear, options);
    row.linear_nanoseconds =
        time_pairs(linear, std::min(options.pairs, linear_times(blocks)), options);
  }
  row.free_blocks = scene.heap->measures().free_blocks;
  return row;
}

template <Fit fit>
Row measure_replacing(const Cell& cell, std::size_t blocks, const Options& options) {
  Scene scene{cell, blocks, options};
  Ours ours{*scene.heap};
  Row row{};
  if (blocks <= options.max_linear_blocks) {
    LinearScene<fit> linear{scene};
    row.linear_nanoseconds = time_replacing(
        linear, linear.live, std::min(replacements(blocks), linear_times(blocks)), options);
  }
  row.nanoseconds = time_replacing(ours, scene.live, replacements(blocks), options);
  row.free_blocks = scene.heap->measures().free_blocks;
  return row;
}

template <class Measure>
void print_table(const Cell& cell, const char* pattern, const Options& options, Measure measure) {
  std::printf("\n%s, %s\n%12s %12s %10s %8s %14s %10s\n", cell.name('-').c_str(), pattern,
              "free blocks", "in the end", "ns", "x first", "linear list ns", "x ours");
  double first = 0;
  for (const std::size_t blocks : block_counts) {
    if (blocks > options.max_blocks) break;
    const Row row = measure(cell, blocks, options);
    if (first == 0) first = row.nanoseconds;
    print_row(blocks, row, first);
  }
}

template <Fit fit>
void print_tables(const Cell& cell, const Options& options) {
  print_table(cell, "pair", options, measure_pairs<fit>);
  print_table(cell, "replace", options, measure_replacing<fit>);
}

void print_tables_of(const Cell& cell, const Options& options) {
  if (cell.fit == "first") return print_tables<Fit::first>(cell, options);
  if (cell.fit == "best") return print_tables<Fit::best>(cell, options);
  print_tables<Fit::worst>(cell, options);
}

}  // namespace
}  // namespace ts::bench

int main(int argc, char** argv) {
  using namespace ts::bench;
  ts::test::Arguments arguments{argc, argv,
                                "Cost of malloc and free as the number of free blocks grows."};
  const Options options{
      .max_blocks = arguments.number("max-blocks", 1'000'000, "the last row's free blocks"),
      .max_linear_blocks =
          arguments.number("max-linear", 100'000, "the linear list's last row; 0: leave it out"),
      .max_bytes = arguments.number("max-bytes", 1024, "sizes are 1 to this"),
      .pairs = arguments.number("pairs", 20'000, "of the pattern `pair`, per repetition"),
      .repetitions = arguments.number("repetitions", 5, "medians are over these"),
      .seed = arguments.number("seed", 1, "of sizes and order")};
  const char* strategy = arguments.word("[STRATEGY [FIT]]");
  const char* const fit_name = arguments.word("[STRATEGY [FIT]]");
  arguments.finish();
  if (options.max_bytes == 0 || options.repetitions == 0 || options.pairs == 0)
    arguments.fail("sizes, pairs and repetitions must be positive, not", "0");

  if (strategy == nullptr) strategy = "lock";
  std::printf("sizes 1 to %zu, median of %zu repetitions, seed %llu\n", options.max_bytes,
              options.repetitions, static_cast<unsigned long long>(options.seed));
  bool found = false;
  for (const Cell& cell : ts::testing::cells) {
    if (cell.strategy != strategy || (fit_name != nullptr && cell.fit != fit_name)) continue;
    found = true;
    print_tables_of(cell, options);
  }
  if (!found)
    arguments.fail("no such heap (lock rwlock nolock arenas cached lockfree; first best worst)",
                   strategy);
  return 0;
}
