// A schedule with its memory, for tests: which thread runs, tick by tick.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "replay/schedule/schedule.h"

namespace ts::replay::testing {

class Hall {
 public:
  Hall(Discipline discipline, const std::vector<std::uint32_t>& tickets, std::uint64_t seed = 1,
       std::size_t capacity = 64)
      : clients_(capacity), schedule_{discipline, seed, denominator_, clients_.data(), capacity} {
    for (const std::uint32_t number : tickets) {
      if (!denominator_.include(number)) throw std::invalid_argument{"nothing common"};
    }
    for (std::uint32_t thread = 0; thread < tickets.size(); ++thread) {
      if (!schedule_.add(thread, tickets[thread])) throw std::invalid_argument{"refused"};
    }
  }

  Schedule& schedule() { return schedule_; }
  Denominator& denominator() { return denominator_; }
  std::vector<Schedule::Client>& clients() { return clients_; }

  std::uint32_t tick() {
    return schedule_.next([](std::uint32_t) { return true; });
  }

  std::vector<std::uint32_t> run(std::size_t ticks) {
    std::vector<std::uint32_t> order;
    for (std::size_t i = 0; i < ticks; ++i) order.push_back(tick());
    return order;
  }

  std::uint64_t ticks_of(std::size_t index) { return schedule_.client(index).share.ticks; }

 private:
  Denominator denominator_;
  std::vector<Schedule::Client> clients_;
  Schedule schedule_;
};

// The least common multiple of all tickets.
inline std::uint64_t multiple(const Denominator& denominator) {
  return static_cast<std::uint64_t>(denominator.whole() >> 32);
}

// The meter of a thread that has run this often since it was 0, made in another way than by
// running.
inline Meter meter_after(std::uint64_t ticks, std::uint32_t tickets,
                         const Denominator& denominator) {
  return denominator.whole() * ticks / tickets;
}

}  // namespace ts::replay::testing
