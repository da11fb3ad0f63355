// Long addition and short division; see meter.h.
#include "replay/schedule/meter.h"

#include <numeric>

namespace ts::replay {

bool Wide::multiply(std::uint32_t factor) {
  std::uint64_t carry = 0;
  for (std::uint32_t& word : words_) {
    const std::uint64_t product = std::uint64_t{word} * factor + carry;
    word = static_cast<std::uint32_t>(product);
    carry = product >> 32;
  }
  return carry == 0 && words_[words - 1] >> 31 == 0;
}

std::uint64_t Wide::divide(std::uint64_t divisor) {
  __extension__ using Long = unsigned __int128;
  Long rest = 0;
  for (std::size_t i = words; i-- > 0;) {
    const Long dividend = rest << 32 | words_[i];
    words_[i] = static_cast<std::uint32_t>(dividend / divisor);
    rest = dividend % divisor;
  }
  return static_cast<std::uint64_t>(rest);
}

void Wide::add(const Wide& other) {
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < words; ++i) {
    carry += std::uint64_t{words_[i]} + other.words_[i];
    words_[i] = static_cast<std::uint32_t>(carry);
    carry >>= 32;
  }
}

void Wide::subtract(const Wide& other) {
  std::uint64_t borrow = 0;
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t difference = std::uint64_t{words_[i]} - other.words_[i] - borrow;
    words_[i] = static_cast<std::uint32_t>(difference);
    borrow = difference >> 63;
  }
}

int Wide::compare(const Wide& other) const {
  for (std::size_t i = words; i-- > 0;) {
    if (words_[i] != other.words_[i]) return words_[i] < other.words_[i] ? -1 : 1;
  }
  return 0;
}

double Wide::ratio_to(const Wide& whole) const {
  std::size_t length = words;
  while (length > 1 && whole.words_[length - 1] == 0) --length;
  double numerator = 0;
  double denominator = 0;
  for (std::size_t i = 0; i < length; ++i) {  // both in units of the highest word
    numerator = numerator / 0x1p32 + words_[i];
    denominator = denominator / 0x1p32 + whole.words_[i];
  }
  return numerator / denominator;
}

Denominator::Denominator() : whole_{1U << 31} { static_cast<void>(whole_.multiply(2)); }

bool Denominator::include(std::uint32_t tickets) {
  Wide quotient = whole_;
  const auto common =
      static_cast<std::uint32_t>(std::gcd(quotient.divide(tickets), std::uint64_t{tickets}));
  Wide multiple = whole_;
  if (!multiple.multiply(tickets / common)) return false;
  whole_ = multiple;
  return true;
}

bool Denominator::includes(std::uint32_t tickets) const {
  Wide quotient = whole_;
  return tickets != 0 && quotient.divide(tickets) == 0;
}

Wide Denominator::part(std::uint32_t tickets) const {
  Wide quotient = whole_;
  quotient.divide(tickets);
  return quotient;
}

void Meter::advance(const Wide& step, const Denominator& denominator) {
  fraction.add(step);
  if (fraction.compare(denominator.whole()) < 0) return;
  fraction.subtract(denominator.whole());
  ++whole;
}

int Meter::compare(const Meter& other) const {
  if (whole != other.whole) return whole < other.whole ? -1 : 1;
  return fraction.compare(other.fraction);
}

double Meter::value(const Denominator& denominator) const {
  return static_cast<double>(whole) + fraction.ratio_to(denominator.whole());
}

}  // namespace ts::replay
