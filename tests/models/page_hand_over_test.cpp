// Every interleaving of handing memory over between threads and the page heap (slabs.cpp:
// retire_slab; large_blocks.cpp: release_large; page_heap_purge.cpp: purge), on a model of five
// pages. One thread releases a slab and gets memory for another. One gets a slab, passes a block of
// it to a reader and waits for its return. One or two free a large block. One or two purge free
// memory, without the lock, and the system may refuse. For steps, see explorer.h. After every step,
// checks that a block's entry is right whenever another thread may look it up.
//
// The model has no double free of a block whose memory is in use again: nothing distinguishes that
// block from the old one. The second free has read its entry before.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "explorer.h"

namespace ts::testing {
namespace {

using Number = std::uint8_t;
using Pages = std::uint8_t;  // a bit for each
constexpr Number pages = 5;

// The threads. Purgers have a second number, for the step at which the system refuses.
constexpr Number giver = 0;          // has a slab at pages 0 and 1
constexpr Number getter = 1;         // passes a block to the reader
constexpr Number reader = 2;         // has a slab at page 3 all the time
constexpr Number freers[] = {3, 4};  // free the large block at page 2
constexpr Number purgers[] = {5, 6};
constexpr Number thread_count = 7;
constexpr Number no_thread = 0xff;

constexpr Number large_page = 2;
constexpr Number reader_page = 3;

// A map entry: nothing, a large block, or a thread's slab. Contents: zero, or the owner.
constexpr Number large_entry = 1;
constexpr Number mark_of(Number thread) { return static_cast<Number>(thread + 2); }

enum class Status : std::uint8_t {
  in_use,  // or between two states
  dirty,
  clean,
  looks_free,  // in no list, but a release of a neighbour mistakes it for free
};

// Steps that can be left out or replaced: the explorer must detect each.
enum class Mistake : std::uint8_t {
  none,
  clears_entries_after_release,
  passes_block_before_entries,
  purges_spans_in_the_list,
  purged_spans_look_free,
  inserts_before_the_discard,
  remembers_spans_to_purge,
  believes_in_every_discard,
  merges_clean_with_dirty,
  checks_then_clears,         // a large block's entry
  releases_before_it_claims,  // a large block
};

struct Rules {
  bool with_second_free = false;  // of the large block; else a second thread that purges
  Mistake mistake = Mistake::none;
  // How a large block's entry is cleared. An exchange also clears the entry if it is not the
  // expected one; the process then aborts, but other threads keep running until it does.
  bool by_compare_exchange = true;
  bool until_the_end = true;  // even so, their blocks' entries must be right
};

struct Span {
  Number begin = 0;
  Number count = 0;
  bool operator==(const Span&) const = default;
};

struct Thread {
  Number step = 0;
  Span span{};     // that it has or is purging
  Pages todo = 0;  // spans remembered by the purger
  bool refused = false;
  bool operator==(const Thread&) const = default;
};

enum class Mail : std::uint8_t { none, passed, returned };

struct State {
  std::array<Number, pages> entry{};    // any
  std::array<Number, pages> content{};  // the owner
  std::array<Status, pages> status{};   // lock
  std::array<Number, pages> owner{};    // the thread that got it from the page heap
  Mail mail = Mail::none;
  Number claims = 0;       // of the large block
  bool is_doomed = false;  // a free found that its block is not in use,
  bool is_over = false;    // and said so
  std::array<Thread, thread_count> thread{};
  bool operator==(const State&) const = default;
};

class Model {
 public:
  using State = testing::State;
  static constexpr unsigned threads = thread_count + 2;

  explicit Model(Rules rules) : rules_{rules} {}

  State first() const {
    State s;
    const auto give = [&s](Number thread, Span span, Number entry) {
      for (Number g = span.begin; g < span.begin + span.count; ++g) {
        s.entry[g] = entry;
        s.content[g] = s.owner[g] = thread;
        s.content[g] = mark_of(thread);
      }
      s.thread[thread].span = span;
    };
    give(giver, {0, 2}, mark_of(giver));
    give(freers[0], {large_page, 1}, large_entry);
    give(reader, {reader_page, 1}, mark_of(reader));
    s.status[4] = Status::dirty;
    s.owner[4] = no_thread;
    s.content[4] = mark_of(reader);
    // Not both at once, which would make too many states.
    s.thread[rules_.with_second_free ? purgers[1] : freers[1]].step = done;
    return s;
  }

  bool step(State& s, unsigned thread) {
    if (s.is_over || !go_on(s, thread)) return false;
    check(s);
    return true;
  }

  void end(const State& s) {
    if (s.is_over) return;
    for (Number i = 0; i < thread_count; ++i) {
      if (s.thread[i].step != done) wrong = "thread " + std::to_string(i) + " waits for good";
    }
    for (Number g = 0; g < pages; ++g) {
      if (g != reader_page && (s.status[g] == Status::in_use || s.entry[g] != 0))
        wrong = "memory did not come back";
      if (s.status[g] == Status::clean) expect_zero(s, g);
    }
  }

  std::string wrong;

 private:
  static constexpr Number done = 0xff;

  bool go_on(State& s, unsigned thread) {
    switch (thread) {
      case giver:
        return give_and_get(s);
      case getter:
        return get_and_pass(s);
      case reader:
        if (s.mail != Mail::passed) return false;
        s.mail = Mail::returned;
        s.thread[reader].step = done;
        return true;
      case freers[0]:
      case freers[1]:
        return free_large(s, static_cast<Number>(thread));
      case purgers[0]:
      case purgers[1]:
        return purge(s, static_cast<Number>(thread), false);
      default:
        return purge(s, purgers[thread - thread_count], true);
    }
  }

  // ---- the threads' steps ----

  bool give_and_get(State& s) {
    enum : Number { give, get = give + 3, set_first, set_second, write, use, give_again };
    Thread& t = s.thread[giver];
    if (t.step == done) return false;
    if (t.step < get) {
      give_back(s, giver, t.step);
    } else if (t.step >= give_again) {
      give_back(s, giver, static_cast<Number>(t.step - give_again));
      if (t.step == give_again + 2) {
        finish(t);
        return true;
      }
    } else if (t.step == get) {
      if (!allocate(s, giver, 2)) {
        finish(t);
        return true;
      }
    } else if (t.step == write) {
      fill(s, giver);
    } else if (t.step != use) {
      s.entry[t.span.begin + (t.step - set_first)] = mark_of(giver);
    } else {
      expect_own(s, giver);
    }
    ++t.step;
    return true;
  }

  bool get_and_pass(State& s) {
    enum : Number { get, set, write, pass, wait, give };
    Thread& t = s.thread[getter];
    Number step = t.step;
    if (step == done) return false;
    if (rules_.mistake == Mistake::passes_block_before_entries && step > get && step < wait)
      step = step == set ? Number{write} : step == write ? Number{pass} : Number{set};
    if (step == get) {
      if (!allocate(s, getter, 1)) {
        s.thread[reader].step = done;
        finish(t);
        return true;
      }
    } else if (step == set) {
      s.entry[t.span.begin] = mark_of(getter);
    } else if (step == write) {
      fill(s, getter);
    } else if (step == pass) {
      s.mail = Mail::passed;
    } else if (step == wait) {
      if (s.mail != Mail::returned) return false;
    } else {
      give_back(s, getter, static_cast<Number>(step - give));
      if (step == give + 1) {
        finish(t);
        return true;
      }
    }
    ++t.step;
    return true;
  }

  // Clears the entries of a slab, one by one, and releases it.
  void give_back(State& s, Number me, Number step) {
    const Span span = s.thread[me].span;
    const bool releases_first = rules_.mistake == Mistake::clears_entries_after_release;
    if (step == (releases_first ? 0 : span.count)) return release(s, me, span);
    s.entry[span.begin + (releases_first ? step - 1 : step)] = 0;
  }

  bool free_large(State& s, Number me) {
    enum : Number { look, claim, take, tell };
    Thread& t = s.thread[me];
    Number& entry = s.entry[large_page];
    const Span span{large_page, 1};
    switch (t.step) {
      case look:
        if (entry != 0 && entry != large_entry) return false;  // in use again: see above
        t.step = entry == large_entry ? claim : tell;
        if (entry == 0) s.is_doomed = true;
        return true;
      case claim: {
        if (rules_.mistake == Mistake::releases_before_it_claims)
          release(s, s.owner[large_page], span);
        const bool is_ours = entry == large_entry || rules_.mistake == Mistake::checks_then_clears;
        if (is_ours || !rules_.by_compare_exchange) entry = 0;
        t.step = is_ours ? take : tell;
        if (is_ours && ++s.claims > 1) wrong = "both frees of a block succeed";
        if (!is_ours) s.is_doomed = true;
        return true;
      }
      case take:
        if (rules_.mistake != Mistake::releases_before_it_claims) release(s, freers[0], span);
        finish(t);
        return true;
      case tell:
        if (s.claims != 1) wrong = "no free of a block succeeds";
        s.is_over = true;
        return true;
      default:
        return false;
    }
  }

  bool purge(State& s, Number me, bool refuses) {
    enum : Number { take, discard, insert };
    Thread& t = s.thread[me];
    if (refuses && t.step != discard) return false;
    const bool is_listed = rules_.mistake == Mistake::purges_spans_in_the_list;
    const bool inserts_first = rules_.mistake == Mistake::inserts_before_the_discard;
    switch (t.step) {
      case take:
        t.span = next_to_purge(s, t);
        if (t.span.count == 0) {
          finish(t);
          return true;
        }
        if (inserts_first) {
          set_status(s, t.span, Status::clean);
        } else if (rules_.mistake == Mistake::purged_spans_look_free) {
          set_status(s, t.span, Status::looks_free);
        } else if (!is_listed) {
          set_status(s, t.span, Status::in_use);
        }
        t.step = discard;
        return true;
      case discard:
        for (Number g = t.span.begin; g < t.span.begin + t.span.count; ++g) {
          if (s.owner[g] != no_thread) wrong = "memory is discarded that another thread got";
          if (!refuses) s.content[g] = 0;
        }
        t.refused = refuses;
        t.step = insert;
        return true;
      case insert: {
        const bool is_clean = !t.refused || rules_.mistake == Mistake::believes_in_every_discard;
        if (!inserts_first) set_status(s, t.span, is_clean ? Status::clean : Status::dirty);
        // Where the system refuses once, it may refuse forever.
        t.step = t.refused ? done : Number{take};
        t.span = {};
        t.refused = false;
        return true;
      }
      default:
        return false;
    }
  }

  // The longest dirty span.
  Span next_to_purge(const State& s, Thread& t) const {
    if (rules_.mistake != Mistake::remembers_spans_to_purge) {
      return longest([&](Number g) { return s.status[g] == Status::dirty; });
    }
    constexpr Pages began = 1 << pages;
    if ((t.todo & began) == 0) {
      t.todo = began;
      for (Number g = 0; g < pages; ++g) {
        if (s.status[g] == Status::dirty) t.todo |= static_cast<Pages>(1 << g);
      }
    }
    const Span span = longest([&](Number g) { return (t.todo >> g & 1) != 0; });
    for (Number g = span.begin; g < span.begin + span.count; ++g)
      t.todo = static_cast<Pages>(t.todo & ~(1 << g));
    return span;
  }

  static void finish(Thread& t) {
    t = {};
    t.step = done;
  }

  // ---- the page heap, under its lock ----

  // The first of the longest runs of pages with a given property.
  template <class Has>
  static Span longest(Has has) {
    Span best;
    Span run;
    for (Number g = 0; g < pages; ++g) {
      run = !has(g) ? Span{} : run.count == 0 ? Span{g, 1} : Span{run.begin, ++run.count};
      if (run.count > best.count) best = run;
    }
    return best;
  }

  static void set_status(State& s, Span span, Status status) {
    for (Number g = span.begin; g < span.begin + span.count; ++g) s.status[g] = status;
  }

  // Dirty memory first.
  bool allocate(State& s, Number me, Number count) {
    for (const Status status : {Status::dirty, Status::clean}) {
      const Span found = longest([&](Number g) { return s.status[g] == status; });
      if (found.count < count) continue;
      const Span span{found.begin, count};
      for (Number g = span.begin; g < span.begin + count; ++g) {
        if (s.owner[g] != no_thread) wrong = "memory is handed out twice";
        if (s.entry[g] != 0) wrong = "memory is handed out that has an entry";
        if (status == Status::clean) expect_zero(s, g);
        s.owner[g] = me;
      }
      set_status(s, span, Status::in_use);
      s.thread[me].span = span;
      return true;
    }
    return false;
  }

  void release(State& s, Number me, Span span) {
    for (Number g = span.begin; g < span.begin + span.count; ++g) {
      if (s.owner[g] != me) wrong = "memory is released twice";
      s.owner[g] = no_thread;
    }
    set_status(s, span, Status::dirty);
    // The spans before and after join the new one if they look like spans of its kind.
    for (int g = span.begin - 1; g >= 0 && merge(s, g); --g) {
    }
    for (int g = span.begin + span.count; g < pages && merge(s, g); ++g) {
    }
  }

  bool merge(State& s, int g) const {
    Status& status = s.status[static_cast<unsigned>(g)];
    const bool is_same = status == Status::dirty || status == Status::looks_free;
    const bool is_other = status == Status::clean;
    if (is_same) status = Status::dirty;
    if (!is_other || rules_.mistake != Mistake::merges_clean_with_dirty) return is_same;
    // One kind for the whole span, the neighbour's.
    for (Status& each : s.status) each = each == Status::dirty ? Status::clean : each;
    return false;
  }

  // ---- what must hold ----

  static void fill(State& s, Number me) {
    const Span span = s.thread[me].span;
    for (Number g = span.begin; g < span.begin + span.count; ++g) s.content[g] = mark_of(me);
  }

  void expect_own(const State& s, Number me) {
    const Span span = s.thread[me].span;
    const bool may_be_hit = s.is_doomed && !rules_.until_the_end;
    for (Number g = span.begin; g < span.begin + span.count; ++g) {
      if (s.entry[g] != mark_of(me) && !may_be_hit) wrong = "a block in use has another entry";
      if (s.content[g] != mark_of(me)) wrong = "a block in use has lost what was written";
    }
  }

  void expect_zero(const State& s, Number g) {
    if (s.content[g] != 0) wrong = "a clean span does not read as zero";
  }

  void check(const State& s) {
    expect_own(s, reader);
    if (s.mail == Mail::passed) expect_own(s, getter);
  }

  Rules rules_;
};

std::string explore(const Rules& rules) { return Explorer{Model{rules}}.run(); }

TEST(PageHandOverModel, IsSoundInEveryInterleaving) {
  Explorer explorer{Model{{}}};
  EXPECT_EQ(explorer.run(), "");
  EXPECT_GT(explorer.states(), 10000U);
}

TEST(PageHandOverModel, OneOfTwoFreesIsTold) {
  Explorer explorer{Model{{.with_second_free = true}}};
  EXPECT_EQ(explorer.run(), "");
  EXPECT_GT(explorer.states(), 10000U);
}

// Until the process ends, an exchange would destroy the entry of another thread's used block, and
// that thread's free might then be the one reported.
TEST(PageHandOverModel, AnExchangeMightHitAnotherBlock) {
  EXPECT_NE(explore({.with_second_free = true, .by_compare_exchange = false}), "");
}

TEST(PageHandOverModel, NoticesEachMistake) {
  for (auto i = static_cast<int>(Mistake::none) + 1;
       i <= static_cast<int>(Mistake::releases_before_it_claims); ++i) {
    const auto mistake = static_cast<Mistake>(i);
    const bool is_of_frees = mistake >= Mistake::checks_then_clears;
    EXPECT_NE(explore({.with_second_free = is_of_frees, .mistake = mistake}), "")
        << "mistake " << i;
  }
}

}  // namespace
}  // namespace ts::testing
