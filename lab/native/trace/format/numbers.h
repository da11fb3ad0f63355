// Columns of numbers, each as two streams: one byte a number that says the most, and the rest.
//
// Why it exists: zstd codes a stream of like bytes well, and a stream in which heads and tails of
// numbers mix badly. Two forms: for sizes, of which few different ones are frequent, and for
// distances and times, whose lower bits are noise that only costs when it is searched for patterns.
// What it refuses to do: trust: a reader that met what no writer writes says so.
#pragma once

#include <bit>
#include <cstdint>

#include "trace/format/bytes.h"

namespace ts::trace {

// Seven bits a byte, low ones first; the first byte in the heads, the others in the tails.
class RepeatedWriter {
 public:
  void add(std::uint64_t number) {
    if (number < 0x80) {
      heads_.push_back(static_cast<std::uint8_t>(number));
      return;
    }
    heads_.push_back(static_cast<std::uint8_t>(number | 0x80));
    put_number(tails_, number >> 7);
  }
  const Bytes& heads() const { return heads_; }
  const Bytes& rest() const { return tails_; }

 private:
  Bytes heads_;
  Bytes tails_;
};

class RepeatedReader {
 public:
  RepeatedReader() = default;
  RepeatedReader(ByteSpan heads, ByteSpan tails) : heads_{heads}, tails_{tails} {}

  std::uint64_t next() {
    const std::uint8_t head = heads_.byte();
    if (head < 0x80) return head;
    const std::uint64_t tail = tails_.number();
    is_too_large_ |= tail >> 57 != 0;
    return tail << 7 | (head & 0x7f);
  }
  bool is_used_up() const { return !is_too_large_ && heads_.is_used_up() && tails_.is_used_up(); }
  bool failed() const { return is_too_large_ || heads_.failed() || tails_.failed(); }

 private:
  ByteReader heads_;
  ByteReader tails_;
  bool is_too_large_ = false;
};

// A head names the interval in which the number lies: the numbers 0 to 7 have one each, and each
// octave above is divided into four. Where in the interval the number lies is in the bits, low
// ones first.
//
//   head h >= 8: octave o = 3 + (h - 8) / 4, and o - 2 bits follow
class SpreadWriter {
 public:
  void add(std::uint64_t number) {
    if (number < 8) {
      heads_.push_back(static_cast<std::uint8_t>(number));
      return;
    }
    const unsigned low_bits = static_cast<unsigned>(std::bit_width(number)) - 3;
    const std::uint64_t quarter = (number >> low_bits) & 3;
    heads_.push_back(static_cast<std::uint8_t>(4 + 4 * low_bits + quarter));
    put_bits(number & ((std::uint64_t{1} << low_bits) - 1), low_bits);
  }
  // Call it once, after the last number.
  void end() {
    for (; used_ > 0; used_ -= used_ < 8 ? used_ : 8, word_ >>= 8) {
      bits_.push_back(static_cast<std::uint8_t>(word_));
    }
  }
  const Bytes& heads() const { return heads_; }
  const Bytes& rest() const { return bits_; }

 private:
  void put_bits(std::uint64_t value, unsigned count) {
    if (count > 32) {
      put_bits(value & 0xffff'ffff, 32);
      put_bits(value >> 32, count - 32);
      return;
    }
    word_ |= value << used_;  // fewer than 8 are in use
    used_ += count;
    for (; used_ >= 8; used_ -= 8, word_ >>= 8) bits_.push_back(static_cast<std::uint8_t>(word_));
  }

  Bytes heads_;
  Bytes bits_;
  std::uint64_t word_ = 0;
  unsigned used_ = 0;
};

class SpreadReader {
 public:
  SpreadReader() = default;
  SpreadReader(ByteSpan heads, ByteSpan bits) : heads_{heads}, bits_{bits} {}

  std::uint64_t next() {
    const std::uint8_t head = heads_.byte();
    if (head < 8) return head;
    const unsigned low_bits = (head - 4U) / 4;
    if (low_bits > 61) {
      is_too_large_ = true;
      return 0;
    }
    const std::uint64_t top = 4 + (head & 3);
    return top << low_bits | take_bits(low_bits);
  }
  // The rest of the last byte must be zero: there is one way to write a column.
  bool is_used_up() const {
    return !is_too_large_ && heads_.is_used_up() && bits_.is_used_up() && word_ == 0;
  }
  bool failed() const { return is_too_large_ || heads_.failed() || bits_.failed(); }

 private:
  std::uint64_t take_bits(unsigned count) {
    if (count > 32) {
      const std::uint64_t low = take_bits(32);
      return low | take_bits(count - 32) << 32;
    }
    for (; held_ < count; held_ += 8) word_ |= static_cast<std::uint64_t>(bits_.byte()) << held_;
    const std::uint64_t value = word_ & ((std::uint64_t{1} << count) - 1);
    word_ >>= count;
    held_ -= count;
    return value;
  }

  ByteReader heads_;
  ByteReader bits_;
  std::uint64_t word_ = 0;
  unsigned held_ = 0;
  bool is_too_large_ = false;
};

}  // namespace ts::trace
