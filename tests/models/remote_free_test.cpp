// Every interleaving of the engine's remote frees (remote_frees.cpp: send, drain; sweep.cpp), on a
// model of one slab whose blocks other threads send home, one or two in a batch, while the owner
// takes them back, hands them out again, frees one itself, and returns the slab when nothing of it is
// in use; or a sweeper does. Steps are the accesses to shared memory, one by one (explorer.h).
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "explorer.h"

namespace ts::testing {
namespace {

constexpr unsigned freers = 3;
constexpr unsigned lives = 2;  // times that a block is handed out

// The blocks that each of them frees: its batch.
constexpr std::array<std::uint8_t, freers> batches{0b1001, 0b0010, 0b0100};
constexpr std::uint8_t own_block = 0b10000;  // the owner frees it
constexpr std::uint8_t all_blocks = 0b11111;

constexpr std::uint8_t blocks_in(std::uint8_t bits) {
  return static_cast<std::uint8_t>(std::popcount(bits));
}

// What can be left out or done otherwise: the explorer must notice each.
enum class Mistake {
  none,
  push_without_being_first,
  used_falls_by_bits,
  bits_before_count,
  lists_without_blocks,
  sweeps_without_hold,
  sweeps_what_is_pending,
  forgets_what_it_does_not_sweep,
  looks_after_counting_without_hold,
};

enum class Holder : std::uint8_t { none, owner, sweeper };

struct State {
  // Shared memory.
  std::uint8_t bits = 0;
  std::uint8_t pending = 0;
  bool on_stack = false;
  std::uint8_t next_writers = 0;  // threads between making the count positive and having pushed
  // The owner's.
  std::uint8_t used = blocks_in(all_blocks);
  std::uint8_t home = 0;   // blocks on the slab's list
  bool listed = false;     // among the slabs that have blocks to give
  std::uint8_t owner = 0;  // its next step
  std::uint8_t counted = 0;
  bool returned = false;  // the slab, to the page heap
  std::uint8_t own = 0;   // the owner's free of its own block: its next step
  Holder holder = Holder::none;
  std::uint8_t sweeper = 0;        // its next step
  std::uint8_t swept_pending = 0;  // what it read
  // Of each freeing thread: its next step, and how often its block will still be handed out.
  std::array<std::uint8_t, freers> step{};
  std::array<std::uint8_t, freers> lives_left{};

  bool operator==(const State&) const = default;
};

class Model {
 public:
  using State = testing::State;
  static constexpr unsigned threads = freers + 1 + freers + 2;

  explicit Model(Mistake mistake) : mistake_{mistake} {}

  static State first() {
    State first;
    first.lives_left.fill(lives - 1);
    return first;
  }

  // Threads below `freers` free; `freers` is the owner's draining; those above are the owner's
  // handing a block out again, and its free of its own, which it does between two drains only; then
  // the sweeper.
  bool step(State& s, unsigned thread) {
    if (thread < freers) return free_step(s, thread);
    if (thread == freers) return owner_step(s);
    if (thread <= 2 * freers) return hand_out(s, thread - freers - 1);
    return thread == 2 * freers + 1 ? own_free_step(s) : sweeper_step(s);
  }

  void end(const State& s) {
    if (!s.returned) wrong = "all threads are done, and the slab is not empty";
  }

  std::string wrong;

 private:
  enum Freer : std::uint8_t { set_bits, count, push, done };
  enum Owner : std::uint8_t { begin_hold, take_stack, take_count, take_bits, settle };
  enum OwnFree : std::uint8_t { put, fall, look, over };
  enum Sweeper : std::uint8_t { try_hold, sweep_stack, load_pending, load_used, leave, end_hold };

  bool free_step(State& s, unsigned thread) {
    const std::uint8_t batch = batches[thread];
    switch (s.step[thread]) {
      case set_bits:
        touch(s);
        if ((s.bits & batch) != 0) wrong = "a block was free already";
        s.bits |= batch;
        s.step[thread] = count;
        return true;
      case count: {
        touch(s);
        const bool first = s.pending == 0 || mistake_ == Mistake::push_without_being_first;
        s.pending = static_cast<std::uint8_t>(s.pending + blocks_in(batch));
        s.step[thread] = first ? push : done;
        if (first && ++s.next_writers > 1) wrong = "two threads push the slab";
        return true;
      }
      case push:
        touch(s);
        if (s.on_stack) wrong = "the slab is on the stack twice";
        s.on_stack = true;
        --s.next_writers;
        s.step[thread] = done;
        return true;
      default:
        return false;
    }
  }

  bool owner_step(State& s) {
    switch (s.owner) {
      case begin_hold:
        if (!s.on_stack || is_in_own_free(s) || s.holder != Holder::none) return false;
        s.holder = Holder::owner;
        s.owner = take_stack;
        return true;
      case take_stack:
        touch(s);
        s.on_stack = false;
        s.owner = mistake_ == Mistake::bits_before_count ? take_bits : take_count;
        return true;
      case take_count:
        s.counted = s.pending;
        s.pending = 0;
        s.owner = mistake_ == Mistake::bits_before_count ? settle : take_bits;
        return true;
      case take_bits:
        if ((s.home & s.bits) != 0) wrong = "a block came home twice";
        if (mistake_ == Mistake::used_falls_by_bits) s.counted = blocks_in(s.bits);
        s.home |= s.bits;
        s.bits = 0;
        s.owner = mistake_ == Mistake::bits_before_count ? take_count : settle;
        return true;
      default:
        if (s.counted > s.used) wrong = "more blocks came home than were out";
        s.used = static_cast<std::uint8_t>(s.used - s.counted);
        s.counted = 0;
        s.owner = begin_hold;
        s.holder = Holder::none;
        settle_slab(s);
        return true;
    }
  }

  void settle_slab(State& s) {
    s.listed = s.listed || s.home != 0 || mistake_ == Mistake::lists_without_blocks;
    if (s.listed && s.home == 0) wrong = "a slab without blocks is listed";
    if (s.used != 0) return;
    // Blocks that will be handed out again are handed out before the slab is returned.
    for (const std::uint8_t left : s.lives_left) {
      if (left != 0) return;
    }
    if (s.home != all_blocks) wrong = "a slab is returned without all of its blocks";
    s.returned = true;
  }

  static bool is_in_own_free(const State& s) { return s.own == fall || s.own == look; }

  // release_overflow()
  bool own_free_step(State& s) {
    switch (s.own) {
      case put:
        if (s.owner != begin_hold) return false;
        touch(s);
        s.home |= own_block;
        s.own = fall;
        return true;
      case fall:
        touch(s);
        if (s.listed && s.used > 1) {
          --s.used;
          s.own = mistake_ == Mistake::looks_after_counting_without_hold ? look : over;
          return true;
        }
        if (s.holder != Holder::none) return false;
        --s.used;
        s.own = over;
        settle_slab(s);
        return true;
      case look:
        touch(s);
        s.own = over;
        return true;
      default:
        return false;
    }
  }

  bool sweeper_step(State& s) {
    switch (s.sweeper) {
      case try_hold:
        if (!s.on_stack || s.returned) return false;
        if (mistake_ != Mistake::sweeps_without_hold) {
          if (s.holder != Holder::none) return false;
          s.holder = Holder::sweeper;
        }
        s.sweeper = sweep_stack;
        return true;
      case sweep_stack:
        s.sweeper = s.on_stack ? load_pending : end_hold;
        s.on_stack = false;
        return true;
      case load_pending:
        touch(s);
        s.swept_pending = s.pending;
        s.sweeper = load_used;
        return true;
      case load_used:
        touch(s);
        s.sweeper = leave;
        if (s.swept_pending != s.used && mistake_ != Mistake::sweeps_what_is_pending) return true;
        if ((s.home | s.bits) != all_blocks || (s.home & s.bits) != 0)
          wrong = "a slab is swept of which a block is in use";
        // Nobody else has anything of it.
        s.returned = true;
        s.sweeper = end_hold;
        return true;
      case leave:
        touch(s);
        if (s.on_stack) wrong = "the slab is on the stack twice";
        s.on_stack = mistake_ != Mistake::forgets_what_it_does_not_sweep;
        s.sweeper = end_hold;
        return true;
      default:
        if (s.holder == Holder::sweeper) s.holder = Holder::none;
        s.swept_pending = 0;
        s.sweeper = try_hold;
        return true;
    }
  }

  // The blocks must be at home. Their thread may still be in its last free: that thread goes on, and
  // another frees the blocks next; the model lets the thread finish first.
  static bool hand_out(State& s, unsigned thread) {
    const std::uint8_t batch = batches[thread];
    if (s.owner != begin_hold || is_in_own_free(s) || s.holder != Holder::none || s.returned ||
        (s.home & batch) != batch || s.lives_left[thread] == 0 || s.step[thread] != done)
      return false;
    s.home = static_cast<std::uint8_t>(s.home & ~batch);
    s.listed = s.home != 0;
    s.used = static_cast<std::uint8_t>(s.used + blocks_in(batch));
    --s.lives_left[thread];
    s.step[thread] = set_bits;
    return true;
  }

  void touch(const State& s) {
    if (s.returned) wrong = "a thread touches a slab that was returned";
  }

  Mistake mistake_;
};

TEST(RemoteFreeModel, IsSoundInEveryInterleaving) {
  Explorer explorer{Model{Mistake::none}};
  EXPECT_EQ(explorer.run(), "");
  EXPECT_GT(explorer.states(), 1000U);
}

TEST(RemoteFreeModel, NoticesEachMistake) {
  for (const Mistake mistake :
       {Mistake::push_without_being_first, Mistake::used_falls_by_bits, Mistake::bits_before_count,
        Mistake::lists_without_blocks, Mistake::sweeps_without_hold,
        Mistake::sweeps_what_is_pending, Mistake::forgets_what_it_does_not_sweep,
        Mistake::looks_after_counting_without_hold}) {
    EXPECT_NE(Explorer{Model{mistake}}.run(), "") << "mistake " << static_cast<int>(mistake);
  }
}

}  // namespace
}  // namespace ts::testing
