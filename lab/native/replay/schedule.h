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

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

#include "replay/memory.h"

namespace ts::replay {

// In which order the calls are made. Schedules decide about the last three.
enum class Order : std::uint8_t {
  asap,      // threads run freely
  paced,     // each call at its recorded time, or later
  recorded,  // one thread at a time, from here on
  round_robin,
  lottery,
  stride,
};
inline constexpr bool runs_one_at_a_time(Order order) { return order >= Order::recorded; }
inline constexpr bool is_scheduled(Order order) { return order >= Order::round_robin; }

inline constexpr std::uint32_t no_thread = UINT32_MAX;

// How many ticks a thread has had for each of its tickets, as an exact number: in fractions of a
// tick common to all threads, the least common multiple of all tickets times 2^32 for the
// remainders. The multiple has up to 62 bits, which is enough for any tickets up to 42, or for any
// three up to a million. A replay has fewer than 2^32 operations, and a meter has room for 2^34
// ticks.
__extension__ using Meter = unsigned __int128;

// The list of tickets given to a replay: "3,2,1". Thread n gets the tickets at n modulo its length.
class Tickets {
 public:
  static constexpr std::uint32_t max_tickets = 1'000'000'000;  // of one thread
  static constexpr std::size_t max_listed = 4096;

  // Returns null, or what is wrong with the text and what to do.
  const char* parse(const char* text) {
    multiple_ = 1;
    for (count_ = 0;; ++text) {  // the last round follows a comma
      std::uint64_t tickets = 0;
      const char* const begin = text;
      for (; *text >= '0' && *text <= '9'; ++text) {
        if (tickets <= max_tickets) tickets = 10 * tickets + static_cast<unsigned>(*text - '0');
      }
      if (text == begin || (*text != ',' && *text != '\0')) {
        return "tickets must be whole numbers from 1 to 1000000000, separated by commas, as in "
               "--tickets 3,2,1";
      }
      if (tickets == 0) {
        return "a thread without tickets would never run; give each at least 1, as in --tickets "
               "3,2,1";
      }
      if (tickets > max_tickets) {
        return "a thread can have 1000000000 tickets at most; divide all of them by the same "
               "number, since only their ratios matter";
      }
      if (count_ == max_listed) {
        return "the list of tickets has more than 4096 numbers; give a shorter one, which is "
               "repeated";
      }
      const std::uint64_t factor = tickets / std::gcd(multiple_, tickets);
      if (multiple_ > max_multiple / factor) {
        return "the least common multiple of these tickets is too long; choose numbers that share "
               "factors, or none above 42";
      }
      multiple_ *= factor;
      listed_[count_++] = static_cast<std::uint32_t>(tickets);
      if (*text == '\0') return nullptr;
    }
  }

  std::uint32_t of(std::uint32_t thread) const { return listed_[thread % count_]; }

  Meter tick() const { return Meter{multiple_} << 32; }

 private:
  static constexpr std::uint64_t max_multiple = std::uint64_t{1} << 62;

  std::size_t count_ = 1;
  std::uint32_t listed_[max_listed] = {1};
  std::uint64_t multiple_ = 1;
};

// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). A
// repeatable lottery needs a generator that no library version changes. Every seed is a good one.
class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) : state_{seed} {}

  constexpr std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // Each number below the bound, which is not 0, is equally likely: draws that would bias the
  // result are repeated.
  constexpr std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t excess = (0 - bound) % bound;  // 2^64 mod bound
    for (;;) {
      const std::uint64_t drawn = next();
      if (drawn >= excess) return drawn % bound;
    }
  }

 private:
  std::uint64_t state_;
};

// The share of one thread, relative to the ticks in which it could run.
struct Share {
  std::uint32_t tickets;  // 0: it has not begun
  std::uint64_t ticks;    // that it got
  std::uint64_t skipped;  // ticks in which it could not run
  // Ticks: its share of the tickets that could run, summed over the ticks in which it could. Under
  // round robin each thread counts as one.
  double owed;
};

class Schedule {
 public:
  // threads: how many there ever are.
  Schedule(Order discipline, std::uint64_t seed, const Tickets& tickets, std::size_t threads)
      : discipline_{discipline},
        random_{seed},
        tickets_{tickets},
        clients_{threads, Backing::shared},
        shares_{threads, Backing::shared} {}

  // A thread that was not there before.
  void add(std::uint32_t thread) {
    Client born = {thread, false, 0};
    if (count_ > 0) born.meter = std::ranges::min(present(), {}, &Client::meter).meter;
    shares_[thread].tickets = tickets_.of(thread);
    Client* const place = find(thread);
    std::copy_backward(place, clients_.begin() + count_, clients_.begin() + count_ + 1);
    *place = born;
    ++count_;
  }

  // A thread that is there.
  void remove(std::uint32_t thread) {
    Client* const place = find(thread);
    std::copy(place + 1, clients_.begin() + count_, place);
    --count_;
  }

  // The thread that gets the next tick, which counts as its own; no_thread if none can run, in
  // which case nothing counts. is_runnable(thread) -> bool is called once for each thread, in order
  // of number.
  template <class IsRunnable>
  std::uint32_t next(IsRunnable&& is_runnable) {
    std::uint64_t runnable = 0;  // tickets
    for (Client& client : present()) {
      client.is_runnable = is_runnable(client.thread);
      if (client.is_runnable) runnable += weight(client);
    }
    if (runnable == 0) return no_thread;
    Client& chosen = *choose(runnable);
    for (Client& client : present()) {
      Share& share = shares_[client.thread];
      if (client.is_runnable) {
        share.owed += static_cast<double>(weight(client)) / static_cast<double>(runnable);
      } else {
        ++share.skipped;
        // The average advance of the others' meters.
        if (discipline_ == Order::stride) client.meter += tickets_.tick() / runnable;
      }
    }
    ++shares_[chosen.thread].ticks;
    chosen.meter += tickets_.tick() / shares_[chosen.thread].tickets;
    last_ = chosen.thread;
    ++ticks_;
    return chosen.thread;
  }

  std::uint64_t ticks() const { return ticks_; }
  bool is_empty() const { return count_ == 0; }
  std::uint32_t first() const { return clients_[0].thread; }  // the lowest thread that is there
  const Share& share(std::uint32_t thread) const { return shares_[thread]; }
  Meter meter(std::uint32_t thread) const { return find(thread)->meter; }  // of one that is there

 private:
  struct Client {
    std::uint32_t thread;
    bool is_runnable;
    Meter meter;
  };

  std::span<Client> present() const { return {clients_.begin(), count_}; }

  // Its client, or the one that it would get.
  Client* find(std::uint32_t thread) const {
    return std::ranges::lower_bound(clients_.begin(), clients_.begin() + count_, thread, {},
                                    &Client::thread);
  }

  // Tickets that count.
  std::uint64_t weight(const Client& client) const {
    return discipline_ == Order::round_robin ? 1 : shares_[client.thread].tickets;
  }

  // Requires that at least one can run.
  Client* choose(std::uint64_t runnable_tickets) {
    std::uint64_t drawn = discipline_ == Order::lottery ? random_.below(runnable_tickets) : 0;
    Client* lowest = nullptr;
    for (Client& client : present()) {
      if (!client.is_runnable) continue;
      switch (discipline_) {
        case Order::round_robin:
          if (client.thread > last_) return &client;  // none is above no_thread
          if (lowest == nullptr) lowest = &client;
          break;
        case Order::lottery:
          if (drawn < weight(client)) return &client;
          drawn -= weight(client);
          break;
        default:
          if (lowest == nullptr || client.meter < lowest->meter) lowest = &client;
          break;
      }
    }
    return lowest;
  }

  Order discipline_;
  Random random_;
  const Tickets& tickets_;
  Mapped<Client> clients_;  // those that are there, by number of thread
  Mapped<Share> shares_;    // by number of thread
  std::size_t count_ = 0;
  std::uint64_t ticks_ = 0;
  std::uint32_t last_ = no_thread;  // for round robin
};

}  // namespace ts::replay
