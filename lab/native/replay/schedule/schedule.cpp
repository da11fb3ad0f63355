// The three disciplines; see schedule.h.
#include "replay/schedule/schedule.h"

#include <algorithm>

namespace ts::replay {

Schedule::Schedule(Discipline discipline, std::uint64_t seed, const Denominator& denominator,
                   Client* clients, std::size_t capacity)
    : discipline_{discipline},
      random_{seed},
      denominator_{denominator},
      clients_{clients},
      capacity_{capacity} {}

std::size_t Schedule::find(std::uint32_t thread) const {
  const auto is_below = [](const Client& client, std::uint32_t wanted) {
    return client.share.thread < wanted;
  };
  return static_cast<std::size_t>(std::lower_bound(clients_, clients_ + count_, thread, is_below) -
                                  clients_);
}

bool Schedule::add(std::uint32_t thread, std::uint32_t tickets) {
  const std::size_t place = find(thread);
  const bool is_there = place < count_ && clients_[place].share.thread == thread;
  if (is_there || count_ == capacity_ || !denominator_.includes(tickets)) return false;
  Client born{};
  born.share.thread = thread;
  born.share.tickets = tickets;
  born.step = denominator_.part(tickets);
  if (count_ > 0) born.meter = clients_[0].meter;
  for (const Client& client : present()) {
    born.meter = std::min(born.meter, client.meter);
  }
  std::copy_backward(clients_ + place, clients_ + count_, clients_ + count_ + 1);
  clients_[place] = born;
  ++count_;
  return true;
}

Share Schedule::remove(std::uint32_t thread) {
  const std::size_t place = find(thread);
  if (place == count_ || clients_[place].share.thread != thread) {
    Share none;
    none.thread = no_thread;
    return none;
  }
  const Share share = clients_[place].share;
  std::copy(clients_ + place + 1, clients_ + count_, clients_ + place);
  --count_;
  return share;
}

std::uint32_t Schedule::grant() {
  std::uint64_t runnable = 0;
  for (const Client& client : present()) {
    if (client.is_runnable) runnable += weight(client);
  }
  if (runnable == 0) return no_thread;
  Client& chosen = *choose(runnable);
  for (Client& client : present()) {
    if (!client.is_runnable) continue;
    client.share.owed += static_cast<double>(weight(client)) / static_cast<double>(runnable);
  }
  skip_blocked(runnable);
  ++chosen.share.ticks;
  chosen.meter += chosen.step;
  last_ = chosen.share.thread;
  ++ticks_;
  return chosen.share.thread;
}

// Tickets that count.
std::uint64_t Schedule::weight(const Client& client) const {
  return discipline_ == Discipline::round_robin ? 1 : client.share.tickets;
}

// Requires that at least one can run.
Schedule::Client* Schedule::choose(std::uint64_t runnable_tickets) {
  switch (discipline_) {
    case Discipline::lottery:
      return winner(runnable_tickets);
    case Discipline::stride:
      return least_meter();
    case Discipline::round_robin:
      break;
  }
  return next_in_turn();
}

Schedule::Client* Schedule::next_in_turn() {
  Client* lowest = nullptr;
  for (Client& client : present()) {
    if (!client.is_runnable) continue;
    if (client.share.thread > last_) return &client;  // none is above no_thread
    if (lowest == nullptr) lowest = &client;
  }
  return lowest;
}

Schedule::Client* Schedule::winner(std::uint64_t runnable_tickets) {
  std::uint64_t drawn = random_.below(runnable_tickets);
  Client* client = clients_;
  for (;; ++client) {
    if (!client->is_runnable) continue;
    if (drawn < client->share.tickets) return client;
    drawn -= client->share.tickets;
  }
}

Schedule::Client* Schedule::least_meter() {
  Client* lowest = nullptr;
  for (Client& client : present()) {
    if (client.is_runnable && (lowest == nullptr || client.meter < lowest->meter)) {
      lowest = &client;
    }
  }
  return lowest;
}

void Schedule::skip_blocked(std::uint64_t runnable_tickets) {
  // The average advance of the others' meters.
  const Meter passed = denominator_.part(runnable_tickets);
  for (Client& client : present()) {
    if (client.is_runnable) continue;
    ++client.share.skipped;
    if (discipline_ == Discipline::stride) client.meter += passed;
  }
}

}  // namespace ts::replay
