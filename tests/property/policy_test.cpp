// One thread: every heap hands out the very addresses that the oracle does, whatever it grows from.
#include <gtest/gtest.h>

#include <cstring>
#include <iostream>

#include "property/trace.h"
#include "property/worlds.h"

namespace ts::testing {
namespace {

struct Live {
  void* payload;
  std::size_t bytes;  // asked for
};

// Runs one script against a heap and its model, in step.
template <class Heap, class World>
class Duel {
 public:
  static constexpr unsigned steps_per_comparison = 2500;

  Duel(Heap& heap, const HeapConfig& config, World& world)
      : heap_{heap}, heaps_{rules_for<Heap>(config), world}, model_{heaps_, first_owner<Heap>} {}

  // Runs `steps` operations; before_step(random) may disturb the world, after_step() sees the heap's
  // part done and the oracle's not.
  template <class Before, class After, class Done>
  void run(Script& script, unsigned steps, Before before_step, After after_step, Done done) {
    for (unsigned step = 0; step < steps; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      before_step(script.random());
      const Op op = script.next(live_.size());
      if (op.kind == Op::allocate) allocate(op, after_step);
      if (op.kind == Op::release) release(op, after_step);
      if (op.kind == Op::resize) resize(op, after_step);
      done();
      if (step % steps_per_comparison == 0) compare();
      if (::testing::Test::HasFatalFailure()) return;
    }
    while (!live_.empty()) release({Op::release, 0, 16, live_.size() - 1}, after_step);
    done();
    compare();
  }

  void destroy_model() { heaps_.destroy(); }
  unsigned refused() const { return refused_; }

 private:
  template <class After>
  void allocate(const Op& op, After after_step) {
    void* const payload = heap_.allocate(op.bytes, op.alignment);
    after_step();
    const auto expected = model_.allocate(op.bytes, op.alignment);
    ASSERT_EQ(address_of(payload), expected.value_or(0))
        << "allocate(" << op.bytes << ", " << op.alignment << ")";
    if (payload == nullptr) {
      ++refused_;
      return;
    }
    ASSERT_EQ(Heap::usable_size(payload) + tag_bytes, heaps_.block_bytes_at(*expected));
    ASSERT_GE(Heap::usable_size(payload), op.bytes);
    live_.push_back({payload, op.bytes});
    std::memset(payload, 0xa5, std::min<std::size_t>(op.bytes, 64));
  }

  template <class After>
  void release(const Op& op, After after_step) {
    void* const payload = live_[op.victim].payload;
    live_[op.victim] = live_.back();
    live_.pop_back();
    heap_.release(payload);
    after_step();
    model_.release(address_of(payload));
  }

  template <class After>
  void resize(const Op& op, After after_step) {
    Live& block = live_[op.victim];
    const bool resized = heap_.resize(block.payload, op.bytes);
    after_step();
    ASSERT_EQ(resized, model_.resize(address_of(block.payload), op.bytes)) << "to " << op.bytes;
    if (resized) block.bytes = op.bytes;
    ASSERT_EQ(Heap::usable_size(block.payload) + tag_bytes,
              heaps_.block_bytes_at(address_of(block.payload)));
  }

  void compare() {
    expect_same_blocks(heap_, heaps_, [&](oracle::Address a) { return model_.holds(a); });
  }

  Heap& heap_;
  oracle::Heaps heaps_;
  Model<Heap> model_;
  std::vector<Live> live_;
  unsigned refused_ = 0;
};

constexpr unsigned steps = 100'000 / slowness;
// Where the source is what matters.
constexpr std::array some_sizes{all_sizes[0], all_sizes[2]};

std::string label(const Sizes& sizes, std::uint64_t seed) {
  return std::string{sizes.name} + " sizes, seed " + std::to_string(seed);
}

template <class Heap>
class Policy : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_os::reset();
  }

  // Returns how many requests were refused.
  unsigned duel_in_buffer(const Sizes& sizes, std::uint64_t seed, const Buffer& buffer,
                          const HeapConfig& config) {
    SCOPED_TRACE(label(sizes, seed));
    Scoped<Heap> heap{config};
    BufferWorld world{buffer};
    Duel<Heap, BufferWorld> duel{*heap, config, world};
    Script script{sizes, seed, 250};
    duel.run(script, steps, [](Random&) {}, [] {}, [] {});
    return duel.refused();
  }

  struct Disturbance {
    unsigned one_in = 0;       // chance that somebody moves the break before an operation, ...
    unsigned one_in_call = 0;  // ... between a look at the break and the attempt to move it, ...
    unsigned one_in_refused = 0;  // ... and that the system refuses a request for memory
  };

  void duel_over_system(const Sizes& sizes, std::uint64_t seed, const HeapConfig& config,
                        const Disturbance& disturb, std::size_t max_live = 150) {
    SCOPED_TRACE(label(sizes, seed));
    Scoped<Heap> heap{config};
    SystemWorld world;
    Duel<Heap, SystemWorld> duel{*heap, config, world};
    Script script{sizes, seed, max_live};
    Random chance{seed + 1};
    fake_os::refuse_if([&](const fake_os::Request& request) {
      const bool for_break = request.call == fake_os::Call::grow_break && request.bytes != 0;
      if (for_break && disturb.one_in_call != 0 && below(chance, disturb.one_in_call) == 0)
        fake_os::move_break(static_cast<std::ptrdiff_t>(below(chance, 5000)));
      return for_break && disturb.one_in_refused != 0 &&
             below(chance, disturb.one_in_refused) == 0;
    });
    const auto disturb_before = [&](Random&) {
      if (disturb.one_in == 0 || below(chance, disturb.one_in) != 0) return;
      fake_os::move_break(static_cast<std::ptrdiff_t>(1 + below(chance, 5000)));
      world.set_break(fake_os::current_break());
    };
    duel.run(script, steps, disturb_before, [&] { world.learn(); },
             [&] { world.expect_nothing_left(); });
    fake_os::refuse_nothing();
    world.set_break(fake_os::current_break());
    heap.destroy();
    world.learn();
    duel.destroy_model();
  }
};

TYPED_TEST_SUITE(Policy, AllHeaps, HeapNames);

TYPED_TEST(Policy, IsExactInARoomyBuffer) {
  for (const Sizes& sizes : all_sizes) {
    const Buffer buffer{std::size_t{16} << 20};
    const unsigned refused =
        this->duel_in_buffer(sizes, base_seed() + 1, buffer, buffer.config());
    ASSERT_FALSE(this->HasFatalFailure());
    EXPECT_EQ(refused, 0U);
  }
}

// So small that requests are refused; and it begins and ends at odd addresses.
TYPED_TEST(Policy, IsExactInATightBuffer) {
  for (const Sizes& sizes : all_sizes) {
    Random random{99};
    std::size_t mean = 0;
    for (int i = 0; i < 1000; ++i) mean += sizes.draw(random) + 16;
    const Buffer buffer{120 * mean / 1000 + 5, 3};
    const unsigned refused =
        this->duel_in_buffer(sizes, base_seed() + 2, buffer, buffer.config());
    ASSERT_FALSE(this->HasFatalFailure());
    EXPECT_GT(refused, 0U);
  }
}

// Growth by exactly what is missing, while somebody else moves the break by odd amounts.
TYPED_TEST(Policy, IsExactOverADisturbedBreak) {
  for (const Sizes& sizes : some_sizes) {
    this->duel_over_system(sizes, base_seed() + 3, growing_by(SourceKind::sbrk),
                           {.one_in = 500, .one_in_call = 20, .one_in_refused = 0});
    ASSERT_FALSE(this->HasFatalFailure());
  }
}

// The break is refused now and then: the heap goes on with mappings, and comes back.
TYPED_TEST(Policy, IsExactOverARefusedBreak) {
  for (const Sizes& sizes : some_sizes) {
    this->duel_over_system(sizes, base_seed() + 4, growing_by(SourceKind::sbrk, 4096),
                           {.one_in = 1000, .one_in_call = 0, .one_in_refused = 4});
    ASSERT_FALSE(this->HasFatalFailure());
  }
}

TYPED_TEST(Policy, IsExactOverMappings) {
  for (const Sizes& sizes : some_sizes) {
    this->duel_over_system(sizes, base_seed() + 5, growing_by(SourceKind::mmap, 20480), {});
    ASSERT_FALSE(this->HasFatalFailure());
  }
}

// Large blocks, and a low threshold: the end of the segment goes back and forth. What a new heap finds
// left behind of the earlier ones is part of the game.
TYPED_TEST(Policy, IsExactWhileTrimming) {
  const Sizes large{"large", [](Random& random) {
                      return below(random, 8) != 0 ? below(random, 2000) : below(random, 3 << 20);
                    }};
  for (const SourceKind kind : {SourceKind::sbrk, SourceKind::mmap}) {
    SCOPED_TRACE(kind == SourceKind::sbrk ? "sbrk" : "mmap");
    this->duel_over_system(large, base_seed() + 6, growing_by(kind, 65536, 2 << 20),
                           {.one_in = 2000, .one_in_call = 0, .one_in_refused = 0}, 60);
    ASSERT_FALSE(this->HasFatalFailure());
  }
}

}  // namespace
}  // namespace ts::testing
