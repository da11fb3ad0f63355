// Where the oracle's and a heap's memory comes from: a buffer, whose addresses the oracle can
// predict, or the system. The system's answers to the heap (logged by fake_os.h) are repeated to
// the oracle, which must ask the same questions in the same order.
#pragma once

#include <algorithm>
#include <deque>
#include <sstream>
#include <stdexcept>
#include <string>

#include "property/oracle.h"
#include "unit/fake_os.h"
#include "unit/heaps.h"

namespace ts::testing {

class BufferWorld : public oracle::World {
 public:
  explicit BufferWorld(const Buffer& buffer)
      : end_{address_of(buffer.begin())}, limit_{address_of(buffer.end())} {}

  oracle::Address break_end() override { return end_; }
  std::optional<oracle::Address> grow_break(std::size_t bytes) override {
    if (bytes > limit_ - end_) return std::nullopt;
    end_ += bytes;
    return end_ - bytes;
  }
  bool shrink_break(oracle::Address, std::size_t bytes) override {
    end_ -= bytes;
    return true;
  }
  std::optional<oracle::Address> map(std::size_t) override { return std::nullopt; }
  bool unmap(oracle::Address, std::size_t) override { return false; }
  bool unmap_one_of_many(oracle::Address, std::size_t) override { return false; }

 private:
  oracle::Address end_;
  oracle::Address limit_;
};

class SystemWorld : public oracle::World {
 public:
  SystemWorld() : end_{address_of(fake_os::current_break())} {}

  // Takes over the heap's requests in its last operation.
  void learn() {
    for (const fake_os::Event& event : fake_os::take_events()) events_.push_back(event);
  }
  // Other code moved the break.
  void set_break(const std::byte* end) { end_ = address_of(end); }

  // After the oracle has repeated its operation, the heap must not have asked for more.
  void expect_nothing_left() {
    for (const fake_os::Event& event : events_) {
      if (!is_strategys_own(event))
        throw std::logic_error("the heap asked the system for more than the oracle: " +
                               text(event.call, event.bytes));
    }
    events_.clear();
  }

  oracle::Address break_end() override { return end_; }
  std::optional<oracle::Address> grow_break(std::size_t bytes) override {
    const auto begin = next(fake_os::Call::grow_break, bytes);
    if (begin) end_ = *begin + bytes;
    return begin;
  }
  bool shrink_break(oracle::Address end, std::size_t bytes) override {
    const auto new_end = next(fake_os::Call::shrink_break, bytes);
    if (new_end.has_value() != (end == end_)) throw std::logic_error("the break shrank elsewhere");
    if (!new_end) return false;
    end_ -= bytes;
    return true;
  }
  std::optional<oracle::Address> map(std::size_t bytes) override {
    return next(fake_os::Call::map, bytes);
  }
  bool unmap(oracle::Address begin, std::size_t bytes) override {
    const auto unmapped = next(fake_os::Call::unmap, bytes);
    if (unmapped && *unmapped != begin) throw std::logic_error("the heap unmapped another piece");
    return unmapped.has_value();
  }
  bool unmap_one_of_many(oracle::Address begin, std::size_t bytes) override {
    const auto event =
        std::find_if(events_.begin(), events_.end(), [&](const fake_os::Event& unmapped) {
          return unmapped.call == fake_os::Call::unmap && address_of(unmapped.begin) == begin &&
                 unmapped.bytes == bytes;
        });
    if (event == events_.end())
      throw std::logic_error("the heap did not make " + text(fake_os::Call::unmap, bytes));
    events_.erase(event);
    return true;
  }

 private:
  static constexpr int max_own_mappings = 8;

  // What is not part of the policy; a heap makes few mappings for a strategy's own data.
  bool is_strategys_own(const fake_os::Event& event) {
    return event.call == fake_os::Call::discard ||
           event.call == fake_os::Call::call_at_thread_exit ||
           (event.call == fake_os::Call::map && ++own_mappings_ <= max_own_mappings);
  }

  static std::string text(fake_os::Call call, std::size_t bytes) {
    std::ostringstream out;
    out << "call " << static_cast<int>(call) << " of " << bytes << " bytes";
    return out.str();
  }

  // The answer to the next call of this kind.
  std::optional<oracle::Address> next(fake_os::Call call, std::size_t bytes) {
    while (!events_.empty()) {
      const fake_os::Event event = events_.front();
      events_.pop_front();
      if (event.call == call && event.bytes == bytes) {
        if (event.begin == nullptr) return std::nullopt;
        return address_of(event.begin);
      }
      if (!is_strategys_own(event))
        throw std::logic_error("the heap made " + text(event.call, event.bytes) +
                               ", the oracle expected " + text(call, bytes));
    }
    throw std::logic_error("the heap did not make " + text(call, bytes));
  }

  oracle::Address end_;
  std::deque<fake_os::Event> events_;
  int own_mappings_ = 0;
};

}  // namespace ts::testing
