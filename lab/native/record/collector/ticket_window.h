// Puts the records of one image into ticket order.
//
// Threads write independently, and a record may be seen long before one with a lower ticket. A
// ticket whose thread was killed, or jumped out of the call, is never published. The caller decides
// up to which ticket records may be taken, and when to skip gaps (collector.h); a record that turns
// up afterwards is taken at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "record/ring.h"

namespace ts::record {

class TicketWindow {
 public:
  // False: no program can have drawn such a ticket, so its memory was overwritten.
  bool add(const Record& record) {
    const std::uint64_t ticket = ticket_of(record);
    if (ticket < next_) {
      late_.push_back(&record);
      return true;
    }
    if (ticket - next_ >= max_ahead) return false;
    const auto slot = static_cast<std::size_t>(ticket - next_);
    if (slot >= slots_.size()) slots_.resize(slot + 1, nullptr);
    slots_[slot] = &record;
    return true;
  }

  std::uint64_t highest() const { return next_ + slots_.size() - 1; }  // that was added; 0: none
  std::uint64_t next() const { return next_; }  // all tickets below it have been taken

  // Calls take(record) for the records up to the ticket `limit`, in order; late ones first. Unless
  // gaps are to be skipped, it stops at the first one.
  template <class Take>
  void deliver(std::uint64_t limit, bool passes_gaps, Take take) {
    if (!late_.empty()) {
      std::sort(late_.begin(), late_.end(),
                [](const Record* a, const Record* b) { return ticket_of(*a) < ticket_of(*b); });
      for (const Record* record : late_) take(*record);
      late_.clear();
    }
    while (next_ <= limit && !slots_.empty()) {
      const Record* const record = slots_.front();
      if (record == nullptr && !passes_gaps) break;
      slots_.pop_front();
      ++next_;
      if (record != nullptr) take(*record);
    }
  }

 private:
  // More than the largest ring has records, and far more than any gap.
  static constexpr std::uint64_t max_ahead = 1 << 24;

  static std::uint64_t ticket_of(const Record& record) {
    return record.ticket.load(std::memory_order_relaxed);  // it had been acquired when it was found
  }

  std::deque<const Record*> slots_;  // of the tickets from next_ on; null: not seen yet
  std::uint64_t next_ = 1;
  std::vector<const Record*> late_;
};

}  // namespace ts::record
