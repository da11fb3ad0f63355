// The three disciplines; see schedule.h.
#include "replay/schedule/schedule.h"

#include <algorithm>

namespace ts::replay {

Schedule::Schedule(Discipline discipline, std::uint64_t seed, const Denominator& denominator,
                   Seat* seats, std::size_t capacity)
    : discipline_{discipline},
      random_{seed},
      denominator_{denominator},
      seats_{seats},
      capacity_{capacity} {}

std::size_t Schedule::find(std::uint32_t thread) const {
  const auto is_below = [](const Seat& seat, std::uint32_t wanted) {
    return seat.share.thread < wanted;
  };
  return static_cast<std::size_t>(std::lower_bound(seats_, seats_ + count_, thread, is_below) -
                                  seats_);
}

bool Schedule::add(std::uint32_t thread, std::uint32_t tickets) {
  const std::size_t place = find(thread);
  const bool is_there = place < count_ && seats_[place].share.thread == thread;
  if (is_there || count_ == capacity_ || !denominator_.includes(tickets)) return false;
  Seat born{};
  born.share.thread = thread;
  born.share.tickets = tickets;
  born.step = denominator_.part(tickets);
  if (count_ > 0) born.meter = seats_[0].meter;
  for (const Seat& seat : present()) {
    born.meter = std::min(born.meter, seat.meter);
  }
  std::copy_backward(seats_ + place, seats_ + count_, seats_ + count_ + 1);
  seats_[place] = born;
  ++count_;
  return true;
}

Share Schedule::remove(std::uint32_t thread) {
  const std::size_t place = find(thread);
  if (place == count_ || seats_[place].share.thread != thread) {
    Share none;
    none.thread = no_thread;
    return none;
  }
  const Share share = seats_[place].share;
  std::copy(seats_ + place + 1, seats_ + count_, seats_ + place);
  --count_;
  return share;
}

std::uint32_t Schedule::grant() {
  std::uint64_t runnable = 0;
  for (const Seat& seat : present()) {
    if (seat.is_runnable) runnable += weight(seat);
  }
  if (runnable == 0) return no_thread;
  Seat& chosen = *choose(runnable);
  for (Seat& seat : present()) {
    if (!seat.is_runnable) continue;
    seat.share.owed += static_cast<double>(weight(seat)) / static_cast<double>(runnable);
  }
  skip_those_who_cannot_run(runnable);
  ++chosen.share.ticks;
  chosen.meter += chosen.step;
  last_ = chosen.share.thread;
  ++ticks_;
  return chosen.share.thread;
}

// Tickets that count.
std::uint64_t Schedule::weight(const Seat& seat) const {
  return discipline_ == Discipline::round_robin ? 1 : seat.share.tickets;
}

// Requires that at least one can run.
Schedule::Seat* Schedule::choose(std::uint64_t runnable_tickets) {
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

Schedule::Seat* Schedule::next_in_turn() {
  Seat* lowest = nullptr;
  for (Seat& seat : present()) {
    if (!seat.is_runnable) continue;
    if (seat.share.thread > last_) return &seat;  // none is above no_thread
    if (lowest == nullptr) lowest = &seat;
  }
  return lowest;
}

Schedule::Seat* Schedule::winner(std::uint64_t runnable_tickets) {
  std::uint64_t drawn = random_.below(runnable_tickets);
  Seat* seat = seats_;
  for (;; ++seat) {
    if (!seat->is_runnable) continue;
    if (drawn < seat->share.tickets) return seat;
    drawn -= seat->share.tickets;
  }
}

Schedule::Seat* Schedule::least_meter() {
  Seat* least = nullptr;
  for (Seat& seat : present()) {
    if (seat.is_runnable && (least == nullptr || seat.meter < least->meter)) {
      least = &seat;
    }
  }
  return least;
}

void Schedule::skip_those_who_cannot_run(std::uint64_t runnable_tickets) {
  // The average advance of the others' meters.
  const Meter passed = denominator_.part(runnable_tickets);
  for (Seat& seat : present()) {
    if (seat.is_runnable) continue;
    ++seat.share.skipped;
    if (discipline_ == Discipline::stride) seat.meter += passed;
  }
}

}  // namespace ts::replay
