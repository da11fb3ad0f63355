// Which of the virtual threads runs in the next tick: round robin, lottery, stride.
//
// The order in which threads allocate determines how a heap fragments. The kernel's order differs
// in every run; each of these is always the same, with known shares.
//
// One call of next() grants a tick. It counts in full, even for a thread that waits or ends in the
// middle of it. In every discipline, the meter of the running thread advances by 1 / tickets.
//
//   round robin  the next runnable thread by number, wrapping around. Tickets do not matter.
//   lottery      a ticket of the runnable threads is drawn, all being equally likely.
//   stride       the lowest meter runs; among equal ones, that of the lowest thread.
//
// A new thread starts at the lowest current meter (0 if there is none): its share counts from its
// birth, and it neither catches up on what others have had nor waits for them.
//
// A thread that cannot run is skipped, and has neither saved nor lost anything when it can run
// again: under stride, its meter rises by 1 / S with each tick that it is skipped, where S is the
// number of tickets of the runnable threads, whose meters rise as much on average. So it stays as
// far ahead of them, or behind, as it was. With its old meter it would run exclusively, tick after
// tick, until it reached the others' meters; and if its meter were only raised to the lowest one,
// it would run next each time it returns, before threads that can always run. (Waldspurger's stride
// scheduling treats clients that leave and return the same way.) This is the one number that may be
// rounded: down, by less than 2^-32 of the smallest step.
//
// The guarantee of stride: let n threads be always runnable, one of them with t of the S tickets.
// After T ticks it has had at most 1 - t / S ticks more than its share T * t / S, and at most
// t / S * (n - 1) less. For with v the lowest meter, t * v <= its ticks <= t * v + 1, and these
// bounds, summed over all threads, bound v.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "replay/schedule/meter.h"
#include "replay/schedule/random.h"

namespace ts::replay {

enum class Discipline : std::uint8_t { round_robin, lottery, stride };

inline constexpr std::uint32_t no_thread = UINT32_MAX;

// The share of one thread. Shares are relative to the ticks in which it could run.
struct Share {
  std::uint32_t thread = 0;
  std::uint32_t tickets = 1;
  std::uint64_t ticks = 0;    // that it got
  std::uint64_t skipped = 0;  // ticks in which it could not run
  // Ticks: its share of the tickets that could run, summed over the ticks in which it could. Under
  // round robin each thread counts as one.
  double owed = 0;
};

class Schedule {
 public:
  struct Client {
    Share share;
    bool is_runnable = false;
    Meter meter = 0;
    Meter step = 0;
  };

  // clients: room for the maximum number of concurrent threads, any contents, touched only as far
  // as needed. denominator: includes all tickets that add() will get; kept by reference.
  Schedule(Discipline discipline, std::uint64_t seed, const Denominator& denominator,
           Client* clients, std::size_t capacity);

  // Does nothing and returns false if there is no room, if the thread is already there, or if
  // the denominator does not include the tickets (0 tickets are never included).
  [[nodiscard]] bool add(std::uint32_t thread, std::uint32_t tickets);
  Share remove(std::uint32_t thread);  // of a thread that has left: thread is no_thread

  // The thread that gets the next tick, which counts as its own; no_thread if none can run, in
  // which case nothing counts. is_runnable(thread) -> bool is called once for each thread, in order
  // of number.
  template <class IsRunnable>
  std::uint32_t next(IsRunnable&& is_runnable) {
    for (Client& client : present()) client.is_runnable = is_runnable(client.share.thread);
    return grant();
  }

  std::uint64_t ticks() const { return ticks_; }
  std::size_t threads() const { return count_; }
  const Client& client(std::size_t index) const { return clients_[index]; }  // by number of thread
  double meter(std::size_t index) const { return denominator_.value(clients_[index].meter); }

 private:
  std::span<Client> present() { return {clients_, count_}; }
  std::size_t find(std::uint32_t thread) const;  // its client, or the one it would get
  std::uint32_t grant();
  std::uint64_t weight(const Client& client) const;
  Client* choose(std::uint64_t runnable_tickets);
  Client* next_in_turn();
  Client* winner(std::uint64_t runnable_tickets);
  Client* least_meter();
  void skip_blocked(std::uint64_t runnable_tickets);

  Discipline discipline_;
  Random random_;
  const Denominator& denominator_;
  Client* clients_;  // by number of thread
  std::size_t capacity_;
  std::size_t count_ = 0;
  std::uint64_t ticks_ = 0;
  std::uint32_t last_ = no_thread;  // for round robin
};

}  // namespace ts::replay
