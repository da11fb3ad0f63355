// Which of the virtual threads runs in the next tick: round robin, lottery, stride.
//
// What fragments a heap is the order in which threads allocate. The kernel's order is another one
// in every run; one of these is the same in all, and its shares are known.
//
// A tick is what one call of next() grants. It counts whole, also for a thread that waits or ends
// in the middle of it. In every discipline, the meter of the thread that runs advances by 1 /
// tickets.
//
//   round robin  the next thread by number that can run, and after the highest the lowest again.
//                Tickets do not matter.
//   lottery      a ticket is drawn, each of those of the threads that can run being equally likely.
//   stride       the least meter runs; of equal ones, that of the lowest thread.
//
// A new thread starts at the least meter of those that are there (0 if there are none): its share
// is counted from its birth, and it neither catches up on what others have had nor waits for them.
//
// A thread that cannot run is skipped, and has neither saved nor lost anything when it can run
// again: under stride, its meter goes up by 1 / S with each tick that it is skipped. S are the
// tickets of those that can run, and their meters go up by as much in the mean. So it stays as far
// ahead of them, or behind, as it was: what it has had and what it was owed while it could run
// differ by as much as before. With its old meter it would come back and run alone, tick after
// tick, until the others' meters were reached; and a meter that is only raised to the least one
// would make it the next to run each time it comes back, before those that can run all the time.
// (So do clients that leave and return in Waldspurger's stride scheduling.) This is the one number
// that may be rounded: down, by less than 2^-32 of the least step.
//
// The guarantee of stride: let n threads be able to run all the time, one of them with t of the S
// tickets. After T ticks it has had more than its share T * t / S by 1 - t / S ticks at most, and
// less by t / S * (n - 1) at most. For with v the least meter, t * v <= its ticks <= t * v + 1, and
// these bounds, summed up over all threads, bound v.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "replay/schedule/meter.h"
#include "replay/schedule/random.h"

namespace ts::replay {

enum class Discipline : std::uint8_t { round_robin, lottery, stride };

inline constexpr std::uint32_t no_thread = UINT32_MAX;

// The share of one thread. Shares are of the ticks in which it could run.
struct Share {
  std::uint32_t thread = 0;
  std::uint32_t tickets = 1;
  std::uint64_t ticks = 0;    // that it got
  std::uint64_t skipped = 0;  // ticks in which it could not run
  // Ticks: its share of the tickets that could run, summed up over the ticks in which it could.
  // Under round robin each thread counts as one.
  double owed = 0;
};

class Schedule {
 public:
  struct Seat {
    Share share;
    bool is_runnable = false;
    Meter meter = 0;
    Meter step = 0;
  };

  // seats: room for as many threads as are there at the same time, any contents, touched only as
  // far as needed. denominator: includes all tickets that add() will be given; kept by reference.
  Schedule(Discipline discipline, std::uint64_t seed, const Denominator& denominator, Seat* seats,
           std::size_t capacity);

  // False: no seat is free, the thread is there already, or the denominator does not include the
  // tickets (0 never is). Nothing has changed then.
  [[nodiscard]] bool add(std::uint32_t thread, std::uint32_t tickets);
  Share remove(std::uint32_t thread);  // of a thread that is not there: thread is no_thread

  // The thread that has the next tick, which is counted as its own; no_thread if none can run,
  // which is not counted. is_runnable(thread) -> bool is asked once for each thread, in order of
  // number.
  template <class IsRunnable>
  std::uint32_t next(IsRunnable&& is_runnable) {
    for (Seat& seat : present()) seat.is_runnable = is_runnable(seat.share.thread);
    return grant();
  }

  std::uint64_t ticks() const { return ticks_; }
  std::size_t threads() const { return count_; }
  const Seat& seat(std::size_t index) const { return seats_[index]; }  // by number of thread
  double meter(std::size_t index) const { return denominator_.value(seats_[index].meter); }

 private:
  std::span<Seat> present() { return {seats_, count_}; }
  std::size_t find(std::uint32_t thread) const;  // its seat, or the one that it would have
  std::uint32_t grant();
  std::uint64_t weight(const Seat& seat) const;
  Seat* choose(std::uint64_t runnable_tickets);
  Seat* next_in_turn();
  Seat* winner(std::uint64_t runnable_tickets);
  Seat* least_meter();
  void skip_those_who_cannot_run(std::uint64_t runnable_tickets);

  Discipline discipline_;
  Random random_;
  const Denominator& denominator_;
  Seat* seats_;  // by number of thread
  std::size_t capacity_;
  std::size_t count_ = 0;
  std::uint64_t ticks_ = 0;
  std::uint32_t last_ = no_thread;  // of round robin
};

}  // namespace ts::replay
