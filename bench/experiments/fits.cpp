// Report E's program: threads share a number of iterations of a number of requests, and the final
// state of the heap shows its fragmentation. Three orders of allocating and freeing:
//   alternating  each block is freed at once, as the report describes its program
//   mixed        after an allocation, a random block of the thread is freed, so often that --kept
//                in a hundred remain: the heap grows, with free blocks between live ones
//   series       first the allocations of an iteration, then as many frees as in `mixed`
// The report's heaps gathered thousands of free blocks, so its times are those of searching among
// many: `mixed` makes that possible in a heap that merges neighbours. The threads together make the
// same requests whatever their number. Leaves out blocks freed by another thread. An operation is
// an allocation with its share of the frees; each block's two ends are written, and read when it is
// freed or, if it is kept, at the end: kept blocks are not freed, so that the final state is the
// one that is examined. live_bytes is the sum of each thread's maximum; the figures for free blocks
// and the segment are the allocator's own, if it reports them.
#include <latch>

#include "programs/support/heap_snapshot.h"
#include "programs/support/mallinfo.h"
#include "programs/support/team.h"
#include "workload.h"

namespace {

using namespace ts::bench;

enum class Shape { alternating, mixed, series };

struct Setup {
  std::size_t threads;
  std::size_t iterations;
  std::size_t requests;
  std::size_t kept;
  std::uint64_t seed;
  Shape shape;

  // The requests of an iteration are divided evenly.
  std::size_t share_of(std::size_t thread) const {
    return requests * (thread + 1) / threads - requests * thread / threads;
  }
  std::size_t most_live_of(std::size_t thread) const {
    const std::size_t share = share_of(thread);
    return shape == Shape::alternating ? 1 : share * iterations * kept / 100 + share + 1;
  }
};

// A block that stores its own length, so that only its address is kept outside the heap.
struct Parcel {
  std::uint32_t bytes;
  std::uint32_t mark;
};

// One thread's blocks.
class alignas(128) Holder {
 public:
  void begin(Parcel** memory) { parcels_ = memory; }

  void add(std::size_t bytes, std::size_t number) {
    auto* const parcel = static_cast<Parcel*>(std::malloc(bytes));
    if (parcel == nullptr) fail("malloc returned null");
    *parcel = {static_cast<std::uint32_t>(bytes), mark_of(number)};
    reinterpret_cast<unsigned char*>(parcel)[bytes - 1] = mark_of(number);
    parcels_[live_++] = parcel;
    live_bytes_ += bytes;
    if (live_bytes_ > most_live_bytes_) most_live_bytes_ = live_bytes_;
  }

  // Any of them, with equal probability.
  void drop_one(Random& random) {
    if (live_ == 0) return;
    Parcel*& place = parcels_[pick(random, live_)];
    check(place);
    live_bytes_ -= place->bytes;
    std::free(place);
    place = parcels_[--live_];
  }

  void check_all() const {
    for (std::size_t i = 0; i < live_; ++i) check(parcels_[i]);
  }

  std::size_t live() const { return live_; }
  std::size_t most_live_bytes() const { return most_live_bytes_; }

 private:
  static void check(const Parcel* parcel) {
    if (reinterpret_cast<const unsigned char*>(parcel)[parcel->bytes - 1] != parcel->mark)
      fail("the content of a live block changed");
  }

  Parcel** parcels_ = nullptr;
  std::size_t live_ = 0;
  std::size_t live_bytes_ = 0;
  std::size_t most_live_bytes_ = 0;
};

void iterate(const Setup& setup, Holder& holder, std::size_t thread, const Sizes& sizes) {
  Random random{seed_of(setup.seed, thread)};
  const std::size_t share = setup.share_of(thread);
  std::size_t due = 0;  // in hundredths of a free
  for (std::size_t iteration = 0; iteration < setup.iterations; ++iteration) {
    for (std::size_t i = 0; i < share; ++i) {
      holder.add(sizes.pick(random), i);
      due += setup.shape == Shape::alternating ? 100 : 100 - setup.kept;
      if (setup.shape == Shape::series) continue;
      for (; due >= 100; due -= 100) holder.drop_one(random);
    }
    for (; due >= 100; due -= 100) holder.drop_one(random);
  }
}

Shape shape_of(const Arguments& arguments, const char* name) {
  if (name != nullptr && std::strcmp(name, "alternating") == 0) return Shape::alternating;
  if (name != nullptr && std::strcmp(name, "mixed") == 0) return Shape::mixed;
  if (name != nullptr && std::strcmp(name, "series") == 0) return Shape::series;
  arguments.fail("needs an order of allocating and freeing, not", name == nullptr ? "" : name);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments{argc, argv, "Iterations of allocations and frees, and what they leave."};
  Setup setup{};
  setup.threads = positive(arguments, "threads", 1, "threads that share the requests, at most 64");
  setup.iterations = positive(arguments, "iterations", 10, "one after the other");
  setup.requests = positive(arguments, "requests", 1'000, "of an iteration, of all threads");
  setup.kept = arguments.number("kept", 50, "in a hundred blocks stay (not: alternating)");
  setup.seed = arguments.number("seed", 1, "of sizes and order");
  const Sizes sizes{arguments, 16, 512};
  const char* const shape = arguments.word("alternating|mixed|series");
  arguments.finish();
  setup.shape = shape_of(arguments, shape);
  constexpr std::size_t max_threads = 64;
  if (setup.threads > max_threads) arguments.fail("are at most", "64", "threads");
  if (setup.kept > 100) arguments.fail("is a share of a hundred, not", "more", "kept");
  if (sizes.least() < sizeof(Parcel) + 1) arguments.fail("is at least", "9", "least");

  static Holder holders[max_threads];
  std::size_t places = 0;
  for (std::size_t i = 0; i < setup.threads; ++i) places += setup.most_live_of(i);
  MappedArray<Parcel*> memory{places};
  std::size_t first = 0;
  for (std::size_t i = 0; i < setup.threads; ++i) {
    holders[i].begin(&memory[first]);
    first += setup.most_live_of(i);
  }

  // Read by the first thread, while all others exist but do nothing.
  std::optional<struct mallinfo2> left;
  std::latch done{static_cast<std::ptrdiff_t>(setup.threads)};
  const double seconds = ts::test::run_team(setup.threads, [&](std::uint32_t thread) {
    iterate(setup, holders[thread], thread, sizes);
    done.count_down();
    if (thread != 0) return;
    done.wait();
    left = ts::test::own_mallinfo2();
    ts::test::heap_snapshot("after the last iteration");
  });

  std::size_t live = 0;
  std::size_t live_bytes = 0;
  for (std::size_t i = 0; i < setup.threads; ++i) {
    holders[i].check_all();
    live += holders[i].live();
    live_bytes += holders[i].most_live_bytes();
  }
  tell("live_blocks", live);
  tell("live_bytes", live_bytes);
  if (left) {
    const bool counts_free_blocks = left->ordblks != 0 || left->fordblks == 0;  // scudo does not
    if (counts_free_blocks) tell("free_blocks", left->ordblks);
    tell("free_bytes", left->fordblks);
    tell("segment_bytes", left->arena + left->hblkhd);
  }
  report(setup.iterations * setup.requests, seconds);
  return 0;
}
