// The list of tickets that a replay is given: "3,2,1".
//
// Tickets are wrong in many ways, and each has its remedy; all are told before anything runs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "replay/schedule/meter.h"

namespace ts::replay {

inline constexpr std::uint32_t most_tickets = 1'000'000'000;  // of one thread
inline constexpr std::size_t most_listed_tickets = 4096;

// Thread n has the tickets at n modulo the length of the list. So "1" means that all have equal
// tickets, and "3,2,1" gives the fourth thread three again.
class Tickets {
 public:
  // Null, or what is wrong with the text and what to do; the list is {1} then.
  const char* parse(const char* text);

  std::uint32_t of(std::uint32_t thread) const { return listed_[thread % count_]; }
  const Denominator& denominator() const { return denominator_; }
  std::size_t count() const { return count_; }

 private:
  const char* read(const char* text);

  std::size_t count_ = 1;
  std::uint32_t listed_[most_listed_tickets] = {1};
  Denominator denominator_;
};

}  // namespace ts::replay
