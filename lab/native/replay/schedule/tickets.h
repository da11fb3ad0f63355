// The list of tickets given to a replay: "3,2,1". All errors are reported, each with its remedy,
// before anything runs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "replay/schedule/meter.h"

namespace ts::replay {

inline constexpr std::uint32_t max_tickets = 1'000'000'000;  // of one thread
inline constexpr std::size_t max_listed_tickets = 4096;

// Thread n gets the tickets at n modulo the length of the list. So with "1" all have equal tickets,
// and "3,2,1" gives the fourth thread three again.
class Tickets {
 public:
  // Returns null, or what is wrong with the text and what to do; then the list is {1}.
  const char* parse(const char* text);

  std::uint32_t of(std::uint32_t thread) const { return listed_[thread % count_]; }
  const Denominator& denominator() const { return denominator_; }
  std::size_t count() const { return count_; }

 private:
  const char* read(const char* text);

  std::size_t count_ = 1;
  std::uint32_t listed_[max_listed_tickets] = {1};
  Denominator denominator_;
};

}  // namespace ts::replay
