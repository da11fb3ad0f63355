// Several threads: which blocks belong to threads and which to the heap, by the same oracle.
// Threads take turns, so that the oracle can follow a single order of events.
#include <gtest/gtest.h>

#include <memory>

#include "property/duel.h"
#include "property/worlds.h"
#include "unit/worker.h"

namespace ts::testing {
namespace {

class Crew {
 public:
  explicit Crew(std::size_t threads) {
    for (std::size_t i = 0; i < threads; ++i) workers_.push_back(std::make_unique<Worker>());
  }
  void run(std::size_t thread, const std::function<void()>& job) { workers_[thread]->run(job); }
  // Ends a thread and starts another in its place.
  void replace(std::size_t thread) {
    workers_[thread].reset();
    workers_[thread] = std::make_unique<Worker>();
  }

 private:
  std::vector<std::unique_ptr<Worker>> workers_;
};

// Pairs of adjacent free pieces that were not merged, with different owners, and with the same one.
struct Unmerged {
  unsigned foreign = 0;
  unsigned lost = 0;
};
Unmerged unmerged_in(const oracle::Heaps& heaps) {
  Unmerged found;
  for (const oracle::Chunk& chunk : heaps.chunks()) {
    for (std::size_t i = 1; i < chunk.pieces.size(); ++i) {
      const oracle::Piece& a = chunk.pieces[i - 1];
      const oracle::Piece& b = chunk.pieces[i];
      if (a.free && b.free) ++(a.owner == b.owner ? found.lost : found.foreign);
    }
  }
  return found;
}

class Turns : public HeapSuite {
 protected:
  static constexpr std::size_t threads = 3;
  static constexpr unsigned steps = 10'000 / slowness;
  void SetUp() override { fake_os::reset(); }
};
INSTANTIATE_TEST_SUITE_P(, Turns, all_heaps(), heap_name);

// Any thread frees and resizes what any other allocated, and threads end and are replaced: a thread
// heap is adopted with all its contents, a cache is emptied.
TEST_P(Turns, AreExactAcrossThreads) {
  for (const Sizes& sizes : {all_sizes[0], all_sizes[1]}) {
    const std::uint64_t seed = base_seed() + 11;
    SCOPED_TRACE(std::string{sizes.name} + " sizes, seed " + std::to_string(seed));
    const Buffer buffer{std::size_t{4} << 20};
    const auto heap = make(buffer.config());
    BufferWorld world{buffer};
    Crew crew{threads};
    Duel<Crew> duel{GetParam(), *heap, buffer.config(), world, crew, threads};
    // A thread gets its heap when it first needs one: an unused heap, or a new one.
    const auto first_use = [&](std::size_t thread) {
      void* payload = nullptr;
      crew.run(thread, [&] { payload = heap->allocate(64, 16); });
      ASSERT_EQ(address_of(payload), duel.model_of(thread).allocate(64, 16));
      crew.run(thread, [&] { heap->release(payload); });
      duel.model_of(thread).release(address_of(payload));
    };
    for (std::size_t thread = 0; thread < threads; ++thread) first_use(thread);
    Random chance{seed};
    Unmerged seen;
    Script script{sizes, seed, 200};
    duel.run(script, steps,
             {.before =
                  [&] {
                    if (below(chance, 100) != 0) return;
                    const std::size_t thread = below(chance, threads);
                    crew.replace(thread);
                    duel.model_of(thread).thread_ends();
                    first_use(thread);
                  },
              .heap_done = [] {},
              .both_done =
                  [&] {
                    if (below(chance, 50) != 0) return;
                    const Unmerged now = unmerged_in(duel.heaps());
                    seen.foreign += now.foreign;
                    seen.lost += now.lost;
                  }});
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_EQ(seen.foreign != 0, is("nolock"));
    EXPECT_EQ(seen.lost != 0, is("nolock"));
  }
}

}  // namespace
}  // namespace ts::testing
