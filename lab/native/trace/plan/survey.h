// What must be known of an image before its plan can be written: the first of two readings.
//
// Why it exists: each table of a plan has its place in the file before its first row is known. And
// an operation says whether other threads have to do with its object, which only the object's
// future tells. What it refuses to do: be exact about lengths. They are upper bounds.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "trace/format/reader.h"

namespace ts::trace {

inline constexpr std::uint64_t no_event = std::numeric_limits<std::uint64_t>::max();

// Which epoch an event belongs to: so many in a row, and forks by themselves.
class EpochRanges {
 public:
  explicit EpochRanges(std::uint64_t events) : events_{events} {}

  // Whether a new one begins before this event. Ask for each, in order.
  bool begins(std::uint64_t event, bool is_fork) {
    const bool is_new = event >= end_ || is_fork || was_fork_;
    if (is_new) end_ = (event / events_ + 1) * events_;
    was_fork_ = is_fork;
    return is_new;
  }

 private:
  std::uint64_t events_;
  std::uint64_t end_ = 0;
  bool was_fork_ = false;
};

struct ThreadSurvey {
  std::uint64_t operations = 0;         // at most, markers included
  std::uint64_t last_event = no_event;  // that is the thread's
  bool ends = false;                    // last_event is its end, or comes after its end
};

struct Survey {
  std::uint64_t events = 0;
  std::uint64_t epoch_events = 0;
  std::uint64_t epochs = 0;  // at most, as the others
  std::uint64_t runs = 0;
  std::uint64_t objects = 0;  // all numbers of objects are below
  std::vector<ThreadSurvey> threads;
  // Objects that more than one thread has to do with.
  std::vector<bool> is_shared;
};

// window: of the plan. Events that would be followed by a child's plan count as forks.
Survey survey(const Reader& reader, const Image& image, std::uint64_t window);

}  // namespace ts::trace
