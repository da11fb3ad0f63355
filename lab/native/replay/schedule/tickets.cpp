// Parses a list of tickets; see tickets.h.
#include "replay/schedule/tickets.h"

namespace ts::replay {
namespace {

constexpr const char* no_list =
    "tickets must be whole numbers from 1 to 1000000000, separated by commas, as in --tickets "
    "3,2,1";
constexpr const char* none =
    "a thread without tickets would never run; give each at least 1, as in --tickets 3,2,1";
constexpr const char* too_large =
    "a thread can have 1000000000 tickets at most; divide all of them by the same number, since "
    "only their ratios matter";
constexpr const char* too_many =
    "the list of tickets has more than 4096 numbers; give a shorter one, which is repeated";
constexpr const char* nothing_common =
    "the least common multiple of these tickets is too long; choose numbers that share factors, or "
    "none above 42";

// The number at text, which is moved past it. Above max_tickets, any larger number.
bool read_number(const char*& text, std::uint64_t& number) {
  if (*text < '0' || *text > '9') return false;
  number = 0;
  for (; *text >= '0' && *text <= '9'; ++text) {
    if (number <= max_tickets) number = 10 * number + static_cast<std::uint64_t>(*text - '0');
  }
  return true;
}

}  // namespace

const char* Tickets::parse(const char* text) {
  const char* const refusal = read(text);
  if (refusal != nullptr) {
    count_ = 1;
    listed_[0] = 1;
    denominator_ = Denominator{};
  }
  return refusal;
}

const char* Tickets::read(const char* text) {
  denominator_ = Denominator{};
  for (count_ = 0;; ++text) {  // the last round follows a comma
    std::uint64_t tickets = 0;
    if (!read_number(text, tickets) || (*text != ',' && *text != '\0')) return no_list;
    if (tickets == 0) return none;
    if (tickets > max_tickets) return too_large;
    if (count_ == max_listed_tickets) return too_many;
    listed_[count_] = static_cast<std::uint32_t>(tickets);
    if (!denominator_.include(listed_[count_])) return nothing_common;
    ++count_;
    if (*text == '\0') return nullptr;
  }
}

}  // namespace ts::replay
