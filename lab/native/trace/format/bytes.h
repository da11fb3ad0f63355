// Numbers as bytes: little-endian words, and numbers of seven bits a byte (LEB128).
//
// Why it exists: a trace is the same on every machine. What it refuses to do: read past an end; a
// ByteReader that met it says so once, at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ts::trace {

using Bytes = std::vector<std::uint8_t>;
using ByteSpan = std::span<const std::uint8_t>;

template <typename Word>
void store(std::uint8_t* at, Word word) {
  for (std::size_t i = 0; i < sizeof word; ++i) {
    at[i] = static_cast<std::uint8_t>(static_cast<std::uint64_t>(word) >> (8 * i));
  }
}

template <typename Word>
Word load(const std::uint8_t* at) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < sizeof(Word); ++i) {
    word |= static_cast<std::uint64_t>(at[i]) << (8 * i);
  }
  return static_cast<Word>(word);
}

inline void put_number(Bytes& bytes, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) bytes.push_back(static_cast<std::uint8_t>(number | 0x80));
  bytes.push_back(static_cast<std::uint8_t>(number));
}

// The sign in the lowest bit, so that small negative numbers are small.
constexpr std::uint64_t fold_sign(std::int64_t number) {
  return (static_cast<std::uint64_t>(number) << 1) ^ static_cast<std::uint64_t>(number >> 63);
}
constexpr std::int64_t unfold_sign(std::uint64_t folded) {
  return static_cast<std::int64_t>((folded >> 1) ^ (0 - (folded & 1)));
}

// CRC-32C (Castagnoli), the checksum of a trace's parts.
std::uint32_t crc32c(ByteSpan bytes);

class ByteReader {
 public:
  ByteReader() = default;
  explicit ByteReader(ByteSpan bytes) : at_{bytes.data()}, end_{bytes.data() + bytes.size()} {}

  std::uint8_t byte() {
    if (at_ == end_) {
      failed_ = true;
      return 0;
    }
    return *at_++;
  }

  std::uint64_t number() {
    std::uint64_t number = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint8_t next = byte();
      if (shift == 63 && next > 1) break;  // more than 64 bits
      number |= static_cast<std::uint64_t>(next & 0x7f) << shift;
      if (next < 0x80) return number;
    }
    failed_ = true;
    return 0;
  }

  ByteSpan bytes(std::uint64_t count) {
    if (count > remaining()) {
      failed_ = true;
      return {};
    }
    const ByteSpan taken{at_, static_cast<std::size_t>(count)};
    at_ += count;
    return taken;
  }

  std::size_t remaining() const { return static_cast<std::size_t>(end_ - at_); }
  bool failed() const { return failed_; }
  bool is_used_up() const { return !failed_ && at_ == end_; }

 private:
  const std::uint8_t* at_ = nullptr;
  const std::uint8_t* end_ = nullptr;
  bool failed_ = false;
};

}  // namespace ts::trace
