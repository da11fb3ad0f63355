// One thread: every heap returns exactly the oracle's addresses, whatever it grows from.
#include <gtest/gtest.h>

#include "property/duel.h"
#include "property/worlds.h"
#include "unit/clean_system.h"

namespace ts::testing {
namespace {

constexpr unsigned steps = 50'000 / slowness;

// If the source is what matters, two kinds of sizes are enough.
constexpr std::array some_sizes{all_sizes[0], all_sizes[2]};

std::string label(const Sizes& sizes, std::uint64_t seed) {
  return std::string{sizes.name} + " sizes, seed " + std::to_string(seed);
}

// Probabilities, one in this many; 0 is never.
struct Disturbance {
  unsigned break_moves = 0;       // other code moves the break before an operation, ...
  unsigned break_moves_late = 0;  // ... between reading the break and trying to move it, ...
  unsigned break_refused = 0;     // ... or the system refuses to move it
};

bool happens(Random& chance, unsigned one_in) { return one_in != 0 && below(chance, one_in) == 0; }

class Policy : public HeapSuite {
 protected:
  // Clears what the heaps of earlier tests left behind, which would save these from growing, the
  // point of the test.
  void SetUp() override {
    clean_system();
    oracle::left_behind().clear();
  }

  // Returns how many requests were refused.
  unsigned duel_in_buffer(const Sizes& sizes, std::uint64_t seed, const Buffer& buffer) {
    SCOPED_TRACE(label(sizes, seed));
    const auto heap = make(buffer.config());
    BufferWorld world{buffer};
    OneThread crew;
    Duel<> duel{GetParam(), *heap, buffer.config(), world, crew};
    Script script{sizes, seed, 250};
    duel.run(script, steps);
    return duel.refused();
  }

  void duel_over_system(const Sizes& sizes, std::uint64_t seed, const HeapConfig& config,
                        const Disturbance& disturb, std::size_t max_live = 150) {
    SCOPED_TRACE(label(sizes, seed));
    auto heap = make(config);
    SystemWorld world;
    OneThread crew;
    Duel<> duel{GetParam(), *heap, config, world, crew};
    Random chance{seed};
    fake_os::refuse_if([&](const fake_os::Request& request) {
      if (request.call != fake_os::Call::grow_break || request.bytes == 0) return false;
      if (happens(chance, disturb.break_moves_late))
        fake_os::move_break(static_cast<std::ptrdiff_t>(below(chance, 5000)));
      return happens(chance, disturb.break_refused);
    });
    Script script{sizes, seed, max_live};
    duel.run(script, steps,
             {.before =
                  [&] {
                    if (!happens(chance, disturb.break_moves)) return;
                    fake_os::move_break(static_cast<std::ptrdiff_t>(1 + below(chance, 5000)));
                    world.set_break(fake_os::current_break());
                  },
              .heap_done = [&] { world.learn(); },
              .both_done = [&] { world.expect_nothing_left(); }});
    fake_os::refuse_nothing();
    heap.reset();
    world.learn();
    duel.heaps().destroy();
  }
};

INSTANTIATE_TEST_SUITE_P(, Policy, all_heaps(), heap_name);

TEST_P(Policy, IsExactInARoomyBuffer) {
  for (const Sizes& sizes : all_sizes) {
    const Buffer buffer{std::size_t{16} << 20};
    const unsigned refused = duel_in_buffer(sizes, base_seed() + 1, buffer);
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_EQ(refused, 0U);
  }
}

// So small that requests fail, and it begins and ends at odd addresses.
TEST_P(Policy, IsExactInATightBuffer) {
  for (const Sizes& sizes : all_sizes) {
    Random random{99};
    std::size_t sum = 0;
    for (int i = 0; i < 1000; ++i) sum += sizes.draw(random) + 16;
    const Buffer buffer{120 * (sum / 1000) + 5, 3};
    const unsigned refused = duel_in_buffer(sizes, base_seed() + 2, buffer);
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_GT(refused, 0U);
  }
}

// Growth by exactly what is missing, while other code moves the break by odd amounts.
TEST_P(Policy, IsExactOverADisturbedBreak) {
  for (const Sizes& sizes : some_sizes) {
    duel_over_system(sizes, base_seed() + 3, growing_by(SourceKind::sbrk),
                     {.break_moves = 500, .break_moves_late = 20, .break_refused = 0});
    ASSERT_FALSE(HasFatalFailure());
  }
}

// Moving the break is refused sometimes: the heap continues with mappings, and returns to the
// break.
TEST_P(Policy, IsExactOverARefusedBreak) {
  for (const Sizes& sizes : some_sizes) {
    duel_over_system(sizes, base_seed() + 4, growing_by(SourceKind::sbrk, 4096),
                     {.break_moves = 1000, .break_moves_late = 0, .break_refused = 4});
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST_P(Policy, IsExactOverMappings) {
  for (const Sizes& sizes : some_sizes) {
    duel_over_system(sizes, base_seed() + 5, growing_by(SourceKind::mmap, 20480), {});
    ASSERT_FALSE(HasFatalFailure());
  }
}

// Large blocks and a low threshold: the end of the segment moves back and forth. A new heap may
// also find what earlier ones left behind.
TEST_P(Policy, IsExactWhileTrimming) {
  const Sizes large{"large", [](Random& random) {
                      return below(random, 8) != 0 ? below(random, 2000) : below(random, 3 << 20);
                    }};
  for (const SourceKind kind : {SourceKind::sbrk, SourceKind::mmap}) {
    SCOPED_TRACE(kind == SourceKind::sbrk ? "sbrk" : "mmap");
    duel_over_system(large, base_seed() + 6, growing_by(kind, 65536, 2 << 20),
                     {.break_moves = 2000, .break_moves_late = 0, .break_refused = 0}, 60);
    ASSERT_FALSE(HasFatalFailure());
  }
}

}  // namespace
}  // namespace ts::testing
