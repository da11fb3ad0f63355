// See ticket_window.h.
#include "record/collector/ticket_window.h"

#include <algorithm>

namespace ts::record {
namespace {

std::uint64_t ticket_of(const Record& record) {
  return record.ticket.load(std::memory_order_relaxed);  // whoever found it has acquired it
}

}  // namespace

bool TicketWindow::add(const Record& record) {
  const std::uint64_t ticket = ticket_of(record);
  if (ticket < next_) {
    late_.push_back(&record);
    return true;
  }
  if (ticket - next_ >= most_ahead) return false;
  const std::size_t slot = first_ + static_cast<std::size_t>(ticket - next_);
  if (slot >= slots_.size()) slots_.resize(std::max(slot + 1, slots_.size() * 2), nullptr);
  slots_[slot] = &record;
  highest_ = std::max(highest_, ticket);
  return true;
}

void TicketWindow::sort_late() {
  std::sort(late_.begin(), late_.end(),
            [](const Record* a, const Record* b) { return ticket_of(*a) < ticket_of(*b); });
}

void TicketWindow::compact() {
  slots_.erase(slots_.begin(), slots_.begin() + static_cast<std::ptrdiff_t>(first_));
  first_ = 0;
}

}  // namespace ts::record
