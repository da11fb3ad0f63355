// Every interleaving of what becomes of the heaps of ended threads (thread_heap.cpp: thread_ends,
// adopt_heap, drain_orphans, drain_all, fork_child), on a model of two heaps with a slab of two
// blocks each, and a third without: two threads leave them, two look for one, one of those takes
// back what orphans hold, the other what all hold when the rest are gone; and at any time it may
// fork. Remote frees come in between, step by step as in remote_free_test.cpp, and blocks of one
// heap lie in the other's bin. Steps: see explorer.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "explorer.h"

namespace ts::testing {
namespace {

using Number = std::uint8_t;
using Blocks = std::uint8_t;  // a bit for each: two of slab 0, then two of slab 1
using Heaps = std::uint8_t;   // a bit for each

constexpr Number heaps = 3;
constexpr Number slabs = 2;  // slab n is heap n's
constexpr Number nobody = 0xff;
constexpr Blocks all_blocks = 0b1111;

constexpr Blocks blocks_of(Number slab) { return static_cast<Blocks>(0b11 << 2 * slab); }
// Of a heap's own slab, if it has one.
constexpr Blocks own_blocks(Number heap) { return heap < slabs ? blocks_of(heap) : Blocks{0}; }
constexpr Heaps bit(Number heap) { return static_cast<Heaps>(1 << heap); }
constexpr Number how_many(Blocks blocks) { return static_cast<Number>(std::popcount(blocks)); }
constexpr Blocks first_of(Blocks blocks) { return static_cast<Blocks>(blocks & -blocks); }

// An empty slab stays in a heap that may need it, if it is short; one of the two is.
constexpr bool is_short(Number slab) { return slab == 0; }

// ---- what the threads do ----

enum class Do : std::uint8_t {
  free,       // into the own bin or a batch; without a heap, at once
  keep,       // frees a block of another heap, which stays in the own bin
  allocate,   // from the bin, or from what came home
  free_held,  // what was allocated, if anything
  adopt,      // a heap that was left, or a new one
  drain,      // one of the orphans
  end,        // leaves the heap with what is in its bin
  end_empty,  // leaves it emptied
  drain_all,  // when all others are done
  nothing,
};

struct Task {
  Do what = Do::nothing;
  Blocks blocks = 0;
};

constexpr Number threads = 4;
constexpr Number forker = 2;
constexpr std::array<std::array<Task, 7>, threads> tasks{{
    {{{Do::keep, 0b0100}, {Do::end}, {Do::free, 0b0001}}},
    {{{Do::free, 0b0010}, {Do::end_empty}}},
    {{{Do::adopt}, {Do::allocate}, {Do::free, 0b1000}, {Do::free_held}, {Do::drain_all}}},
    {{{Do::drain}, {Do::adopt}, {Do::allocate}, {Do::free_held}, {Do::drain}, {Do::end}}},
}};

// What can be left out or done otherwise: the explorer must notice each.
enum class Mistake : std::uint8_t {
  none,
  drains_without_the_lock,
  leaves_before_it_is_done,  // the heap is pushed before its batches are sent
  adopts_without_removing,
  frees_into_the_heap_it_left,
  drains_all_once,
  empties_without_sending,
  drains_and_keeps_empty_slabs,
  skips_emptied_orphans,
  refills_a_bin_with_blocks,
  // of a fork
  ends_without_mark,
  child_adopts_busy_heaps,
  child_adopts_orphans,
  child_adopts_nothing,
  forks_without_the_lock,
};

// A thread's next step. Sending and draining are parts of several tasks.
enum class Step : std::uint8_t {
  begin,
  // sending
  set_bits,
  count,
  push,
  // emptying, of which draining is the second half
  empty_bin,
  take_stack,
  take_count,
  take_bits,
  settle,
  release_empty,
  // with the own heap in order
  leave,
  drain_orphans,
};

struct Thread {
  Number task = 0;
  Step step = Step::begin;
  Number heap = nobody;       // its own,
  Number left_heap = nobody;  // and the one that it had
  Number work = nobody;       // the heap that it is changing
  bool is_emptying = false;   // not only draining
  Blocks sending = 0;         // not yet in the slab's bits
  Number slab = 0;            // that it sends to
  Number counted = 0;
  Number orphans_left = 0;  // to drain
  Number last_orphan = 0;
  Number rounds = 0;
  Blocks held = 0;

  bool operator==(const Thread&) const = default;
};

struct State {
  // Blocks, by where they are; each is in one place.
  Blocks out = all_blocks;            // the program has them
  std::array<Blocks, heaps> bin{};    // owner
  std::array<Blocks, heaps> batch{};  // owner
  Blocks bits = 0;                    // sent
  Blocks home = 0;                    // owner: on their slabs' lists
  Blocks lost = 0;                    // with the threads that a fork left behind
  // Slabs.
  std::array<Number, slabs> pending{};
  std::array<bool, slabs> on_stack{};
  std::array<Number, slabs> used{2, 2};  // owner
  std::array<bool, slabs> returned{};
  // Heaps.
  std::array<Number, heaps> owner{0, 1, nobody};
  std::array<Number, heaps> orphans{nobody, nobody, nobody};  // lock: the list
  Heaps exist = 0b011;
  Heaps stocked = 0;  // lock
  Heaps busy = 0;     // owner
  Number lock = nobody;
  // The child of a fork: where a thread was caught in the middle.
  bool forked = false;
  Heaps broken = 0;  // in mid-change
  Heaps left = 0;    // nobody's for good
  Number stuck = 0;  // slabs with a free that was not finished
  std::array<Thread, threads> thread{};

  bool operator==(const State&) const = default;
};

class Model {
 public:
  using State = testing::State;
  static constexpr unsigned threads =
      testing::threads + 1;  // the last is the forker, when it forks

  Model(bool with_fork, Mistake mistake) : with_fork_{with_fork}, mistake_{mistake} {}

  static State first() {
    State first;
    first.thread[0].heap = 0;
    first.thread[1].heap = 1;
    return first;
  }

  bool step(State& s, unsigned thread) {
    const bool moved = thread == testing::threads ? fork(s) : go_on(s, static_cast<Number>(thread));
    if (moved) check_places(s);
    return moved;
  }

  void end(const State& s) {
    for (Number i = 0; i < testing::threads; ++i) {
      if (task_of(s, i).what != Do::nothing) wrong = "a thread waits for good";
    }
    auto elsewhere = static_cast<Blocks>(s.out | s.lost);
    for (Number h = 0; h < heaps; ++h) {
      if ((s.left & bit(h)) != 0) {
        elsewhere |= static_cast<Blocks>(s.bin[h] | s.batch[h] | own_blocks(h));
        continue;
      }
      if ((s.bin[h] | s.batch[h]) != 0) wrong = "a heap still holds blocks";
      if ((s.exist & bit(h)) != 0 && s.owner[h] == nobody && !is_orphan(s, h))
        wrong = "a heap is nobody's, and nobody can adopt it";
    }
    for (Number slab = 0; slab < slabs; ++slab) {
      const bool may_stay = (s.stuck & bit(slab)) != 0 || (elsewhere & blocks_of(slab)) != 0;
      if (!s.returned[slab] && !may_stay) wrong = "an empty slab is not returned";
    }
  }

  std::string wrong;

 private:
  static Task task_of(const State& s, Number thread) {
    return tasks[thread][s.thread[thread].task];
  }

  bool go_on(State& s, Number me) {
    Thread& t = s.thread[me];
    switch (t.step) {
      case Step::begin:
        return begin(s, me, task_of(s, me));
      case Step::set_bits:
        touch(s, t.slab);
        s.bits |= t.sending;
        t.counted = how_many(t.sending);
        t.sending = 0;
        t.step = Step::count;
        return true;
      case Step::count: {
        touch(s, t.slab);
        const bool is_first = s.pending[t.slab] == 0;
        s.pending[t.slab] = static_cast<Number>(s.pending[t.slab] + t.counted);
        t.counted = 0;
        if (is_first) {
          t.step = Step::push;
        } else {
          sent(s, me);
        }
        return true;
      }
      case Step::push:
        touch(s, t.slab);
        if (s.on_stack[t.slab]) wrong = "a slab is on the stack twice";
        s.on_stack[t.slab] = true;
        sent(s, me);
        return true;
      case Step::empty_bin:
        empty_bin(s, me);
        return true;
      case Step::take_stack:
      case Step::take_count:
      case Step::take_bits:
      case Step::settle:
        drain(s, me);
        return true;
      case Step::release_empty:
        if (mistake_ != Mistake::drains_and_keeps_empty_slabs) release_if_empty(s, t.work);
        worked(s, me);
        return true;
      case Step::leave:
        return leave(s, me);
      case Step::drain_orphans:
        return begin_draining(s, me);
    }
    return false;
  }

  bool begin(State& s, Number me, Task task) {
    Thread& t = s.thread[me];
    switch (task.what) {
      case Do::free:
        free(s, me, task.blocks);
        return true;
      case Do::free_held: {
        const Blocks held = t.held;
        t.held = 0;
        free(s, me, held);
        return true;
      }
      case Do::keep:
        s.out = static_cast<Blocks>(s.out & ~task.blocks);
        own(s, me, t.heap);
        s.bin[t.heap] |= task.blocks;
        next_task(t);
        return true;
      case Do::allocate:
        own(s, me, t.heap);
        if (s.bin[t.heap] != 0 && mistake_ != Mistake::refills_a_bin_with_blocks) {
          hand_out(s, me);
        } else {
          work_on(s, me, t.heap, false);
          t.step = Step::take_stack;
        }
        return true;
      case Do::adopt:
        return adopt(s, me);
      case Do::drain:
        t.orphans_left = 1;
        return begin_draining(s, me);
      case Do::end:
      case Do::end_empty:
        if (mistake_ == Mistake::leaves_before_it_is_done) {
          if (s.lock != nobody) return false;
          push_orphan(s, t.heap);
        }
        t.left_heap = t.heap;
        if (task.what == Do::end) s.stocked |= bit(t.heap);  // no one looks until it is an orphan
        work_on(s, me, t.heap, true);
        if (mistake_ == Mistake::ends_without_mark)
          s.busy = static_cast<Heaps>(s.busy & ~bit(t.heap));
        if (task.what == Do::end) {
          send_next(s, me);
        } else {
          t.step = Step::empty_bin;
        }
        return true;
      case Do::drain_all:
        for (Number i = 0; i < testing::threads; ++i) {
          if (i != me && task_of(s, i).what != Do::nothing) return false;
        }
        t.rounds = mistake_ == Mistake::drains_all_once ? 1 : 2;
        begin_round(s, me);
        return true;
      case Do::nothing:
        break;
    }
    return false;
  }

  static void next_task(Thread& t) {
    t.step = Step::begin;
    t.slab = 0;
    t.is_emptying = false;
    ++t.task;
  }

  void free(State& s, Number me, Blocks blocks) {
    Thread& t = s.thread[me];
    s.out = static_cast<Blocks>(s.out & ~blocks);
    Number heap = t.heap;
    if (mistake_ == Mistake::frees_into_the_heap_it_left && heap == nobody) heap = t.left_heap;
    if (blocks != 0 && heap == nobody) {
      send(t, blocks);
      return;
    }
    if (blocks != 0) {
      own(s, me, heap);
      const bool is_own = (blocks & own_blocks(heap)) != 0;
      (is_own ? s.bin[heap] : s.batch[heap]) |= blocks;
    }
    next_task(t);
  }

  // ---- sending ----

  static void send(Thread& t, Blocks blocks) {
    t.slab = (blocks & blocks_of(0)) != 0 ? 0 : 1;
    t.sending = static_cast<Blocks>(blocks & blocks_of(t.slab));
    t.step = Step::set_bits;
  }

  void sent(State& s, Number me) {
    if (s.thread[me].work != nobody) return send_next(s, me);
    next_task(s.thread[me]);
  }

  // What the heap has in batches, then what its thread is about.
  void send_next(State& s, Number me) {
    Thread& t = s.thread[me];
    Blocks& batch = s.batch[t.work];
    const bool is_left_out =
        mistake_ == Mistake::empties_without_sending && task_of(s, me).what != Do::end;
    if (batch != 0 && !is_left_out) {
      send(t, batch);
      batch = static_cast<Blocks>(batch & ~t.sending);
    } else if (task_of(s, me).what == Do::end) {
      worked(s, me);
    } else {
      t.step = Step::take_stack;
    }
  }

  // ---- a heap's owner ----

  void own(const State& s, Number me, Number heap) {
    if (s.owner[heap] != me) wrong = "a thread changes a heap that is not its own";
  }

  void enter(State& s, Number me, Number heap) {
    if (s.owner[heap] != nobody) wrong = "a heap has two owners";
    if ((s.broken & bit(heap)) != 0) wrong = "a heap is used that was caught in mid-change";
    s.owner[heap] = me;
  }

  static void work_on(State& s, Number me, Number heap, bool is_emptying) {
    s.thread[me].work = heap;
    s.thread[me].is_emptying = is_emptying;
    s.busy |= bit(heap);
  }

  void empty_bin(State& s, Number me) {
    const Number heap = s.thread[me].work;
    own(s, me, heap);
    const auto own_ones = static_cast<Blocks>(s.bin[heap] & own_blocks(heap));
    s.batch[heap] |= static_cast<Blocks>(s.bin[heap] & ~own_ones);
    s.bin[heap] = 0;
    if (own_ones != 0) {
      s.home |= own_ones;
      s.used[heap] = static_cast<Number>(s.used[heap] - how_many(own_ones));
      if (!is_short(heap)) release_if_empty(s, heap);
    }
    send_next(s, me);
  }

  void drain(State& s, Number me) {
    Thread& t = s.thread[me];
    const Number slab = t.work;  // the heap's only one
    own(s, me, t.work);
    if (t.step == Step::take_stack) {
      if (slab < slabs && s.on_stack[slab]) {
        s.on_stack[slab] = false;
        t.step = Step::take_count;
      } else {
        drained(s, me, t.is_emptying);
      }
      return;
    }
    touch(s, slab);
    if (t.step == Step::take_count) {
      t.counted = s.pending[slab];
      s.pending[slab] = 0;
      t.step = Step::take_bits;
    } else if (t.step == Step::take_bits) {
      const auto came = static_cast<Blocks>(s.bits & blocks_of(slab));
      s.bits = static_cast<Blocks>(s.bits & ~came);
      s.home |= came;
      t.step = Step::settle;
    } else {
      if (t.counted > s.used[slab]) wrong = "more blocks came home than were out";
      s.used[slab] = static_cast<Number>(s.used[slab] - t.counted);
      t.counted = 0;
      if (!is_short(slab)) release_if_empty(s, slab);
      drained(s, me, true);
    }
  }

  void drained(State& s, Number me, bool may_have_emptied) {
    if (task_of(s, me).what == Do::allocate) {
      refill(s, s.thread[me].work);
      hand_out(s, me);
      worked(s, me);
    } else if (may_have_emptied) {
      s.thread[me].step = Step::release_empty;
    } else {
      worked(s, me);
    }
  }

  void refill(State& s, Number heap) const {
    const auto taken = static_cast<Blocks>(s.home & own_blocks(heap));
    if (taken == 0 || s.returned[heap]) return;
    s.home = static_cast<Blocks>(s.home & ~taken);
    if (mistake_ == Mistake::refills_a_bin_with_blocks) s.bin[heap] = 0;
    s.bin[heap] |= taken;
    s.used[heap] = static_cast<Number>(s.used[heap] + how_many(taken));
  }

  static void hand_out(State& s, Number me) {
    Thread& t = s.thread[me];
    Blocks& bin = s.bin[t.heap];
    t.held = first_of(bin);
    bin = static_cast<Blocks>(bin & ~t.held);
    s.out |= t.held;
    if (t.work == nobody) next_task(t);
  }

  void release_if_empty(State& s, Number heap) {
    if (heap >= slabs || s.returned[heap] || s.used[heap] != 0) return;
    if ((s.home & blocks_of(heap)) != blocks_of(heap))
      wrong = "a slab is returned without all of its blocks";
    s.home = static_cast<Blocks>(s.home & ~blocks_of(heap));
    s.returned[heap] = true;
  }

  // The heap is in order.
  void worked(State& s, Number me) {
    Thread& t = s.thread[me];
    s.busy = static_cast<Heaps>(s.busy & ~bit(t.work));
    switch (task_of(s, me).what) {
      case Do::end:
      case Do::end_empty:
        t.step = Step::leave;
        return;
      case Do::allocate:
        t.work = nobody;
        next_task(t);
        return;
      default:
        break;
    }
    if (t.work == t.heap) {
      t.work = nobody;
      t.step = Step::drain_orphans;
      t.orphans_left = heaps;
    } else {
      drained_orphan(s, me);
    }
  }

  // ---- orphans ----

  static bool is_orphan(const State& s, Number heap) {
    return std::ranges::find(s.orphans, heap) != s.orphans.end();
  }

  static Number last_orphan(const State& s) {
    Number last = nobody;
    for (const Number heap : s.orphans) last = heap != nobody ? heap : last;
    return last;
  }

  void push_orphan(State& s, Number heap) {
    if (is_orphan(s, heap)) {
      wrong = "a heap is in the list twice";
      return;
    }
    std::ranges::rotate(s.orphans, s.orphans.end() - 1);
    s.orphans[0] = heap;
  }

  static Number pop_orphan(State& s) {
    const Number heap = s.orphans[0];
    s.orphans[0] = nobody;
    std::ranges::rotate(s.orphans, s.orphans.begin() + 1);
    return heap;
  }

  // The first becomes the last.
  static void rotate_orphans(State& s) {
    const Number heap = pop_orphan(s);
    *std::ranges::find(s.orphans, nobody) = heap;
  }

  bool leave(State& s, Number me) {
    Thread& t = s.thread[me];
    if (s.lock != nobody) return false;
    s.owner[t.work] = nobody;
    if (mistake_ != Mistake::leaves_before_it_is_done) push_orphan(s, t.work);
    t.work = t.heap = nobody;
    next_task(t);
    return true;
  }

  bool adopt(State& s, Number me) {
    if (s.lock != nobody) return false;
    Number heap = mistake_ == Mistake::adopts_without_removing ? s.orphans[0] : pop_orphan(s);
    if (heap == nobody) {
      // A new one. The model has room for one; who comes second waits for an orphan.
      heap = heaps - 1;
      if ((s.exist & bit(heap)) != 0) return false;
      s.exist |= bit(heap);
    }
    enter(s, me, heap);
    s.thread[me].heap = heap;
    next_task(s.thread[me]);
    return true;
  }

  bool begin_draining(State& s, Number me) {
    if (mistake_ != Mistake::drains_without_the_lock) {
      if (s.lock != nobody) return false;
      s.lock = me;
    }
    s.thread[me].last_orphan = last_orphan(s);
    drain_next(s, me);
    return true;
  }

  void drain_next(State& s, Number me) {
    Thread& t = s.thread[me];
    const Number heap = s.orphans[0];
    if (heap == nobody || t.orphans_left == 0) {
      if (s.lock == me) s.lock = nobody;
      t.orphans_left = t.last_orphan = 0;
      if (task_of(s, me).what == Do::drain_all && --t.rounds != 0) return begin_round(s, me);
      return next_task(t);
    }
    enter(s, me, heap);
    const bool is_stocked = (s.stocked & bit(heap)) != 0;
    work_on(s, me, heap, is_stocked);
    t.step = is_stocked ? Step::empty_bin : Step::take_stack;
    if (!is_stocked && mistake_ == Mistake::skips_emptied_orphans) worked(s, me);
  }

  void drained_orphan(State& s, Number me) {
    Thread& t = s.thread[me];
    const Number heap = t.work;
    s.stocked = static_cast<Heaps>(s.stocked & ~bit(heap));
    s.owner[heap] = nobody;
    rotate_orphans(s);
    t.work = nobody;
    t.orphans_left = heap == t.last_orphan ? Number{0} : static_cast<Number>(t.orphans_left - 1);
    drain_next(s, me);
  }

  void begin_round(State& s, Number me) {
    Thread& t = s.thread[me];
    own(s, me, t.heap);
    work_on(s, me, t.heap, true);
    t.step = Step::empty_bin;
  }

  // ---- fork ----

  // From here on, the state is the child's: only the thread that forked is there. (The parent's is
  // as if there had been none.)
  bool fork(State& s) {
    if (!with_fork_ || s.forked || s.thread[forker].step != Step::begin) return false;
    if (task_of(s, forker).what == Do::nothing) return false;
    if (s.lock != nobody && mistake_ != Mistake::forks_without_the_lock) return false;
    s.lock = nobody;
    s.forked = true;
    for (Number i = 0; i < testing::threads; ++i) {
      if (i != forker) vanish(s, s.thread[i]);
    }
    for (Number heap = 0; heap < heaps; ++heap) {
      if ((s.exist & bit(heap)) == 0 || heap == s.thread[forker].heap) continue;
      s.owner[heap] = nobody;
      if (is_orphan(s, heap) && mistake_ != Mistake::child_adopts_orphans) continue;
      if ((s.busy & bit(heap)) != 0 && mistake_ != Mistake::child_adopts_busy_heaps) {
        s.left |= bit(heap);
      } else if (mistake_ != Mistake::child_adopts_nothing) {
        leave_in_child(s, heap);
      }
    }
    return true;
  }

  static void vanish(State& s, Thread& t) {
    const bool is_sending =
        t.step == Step::set_bits || t.step == Step::count || t.step == Step::push;
    if (is_sending) s.stuck |= bit(t.slab);
    if (t.work != nobody && t.step != Step::leave) s.broken |= bit(t.work);
    s.lost |= t.sending;
    t = {};
    t.task = tasks[0].size() - 1;
  }

  void leave_in_child(State& s, Number heap) {
    if ((s.broken & bit(heap)) != 0) wrong = "a heap is left that was caught in mid-change";
    s.stocked |= bit(heap);
    push_orphan(s, heap);
  }

  // ---- what must hold ----

  void touch(const State& s, Number slab) {
    if (s.returned[slab]) wrong = "a thread touches a slab that was returned";
  }

  void check_places(const State& s) {
    Blocks once = 0;
    const auto add = [&](Blocks blocks) {
      if ((once & blocks) != 0) wrong = "a block is in two places";
      once |= blocks;
    };
    for (const Blocks place : {s.out, s.bits, s.home, s.lost}) add(place);
    for (Number h = 0; h < heaps; ++h) {
      add(s.bin[h]);
      add(s.batch[h]);
    }
    for (const Thread& t : s.thread) add(t.sending);
    for (Number slab = 0; slab < slabs; ++slab) {
      if (s.returned[slab]) add(blocks_of(slab));
    }
    if (once != all_blocks) wrong = "a block is lost";
  }

  bool with_fork_;
  Mistake mistake_;
};

TEST(AdoptionModel, IsSoundInEveryInterleaving) {
  Explorer explorer{Model{false, Mistake::none}};
  EXPECT_EQ(explorer.run(), "");
  EXPECT_GT(explorer.states(), 10000U);
}

TEST(AdoptionModel, NoticesEachMistake) {
  for (auto i = static_cast<int>(Mistake::none) + 1;
       i < static_cast<int>(Mistake::ends_without_mark); ++i)
    EXPECT_NE((Explorer{Model{false, static_cast<Mistake>(i)}}.run()), "") << "mistake " << i;
}

TEST(AdoptionModel, IsSoundInTheChildOfAFork) {
  Explorer explorer{Model{true, Mistake::none}};
  EXPECT_EQ(explorer.run(), "");
  EXPECT_GT(explorer.states(), 10000U);
}

TEST(AdoptionModel, NoticesEachMistakeOfAFork) {
  for (auto i = static_cast<int>(Mistake::ends_without_mark);
       i <= static_cast<int>(Mistake::forks_without_the_lock); ++i)
    EXPECT_NE((Explorer{Model{true, static_cast<Mistake>(i)}}.run()), "") << "mistake " << i;
}

}  // namespace
}  // namespace ts::testing
