// Reads an input's bytes as decisions. Zeros follow its end, so every input means something.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::fuzz {

class Input {
 public:
  Input(const std::uint8_t* begin, std::size_t bytes) : at_{begin}, end_{begin + bytes} {}

  bool is_empty() const { return at_ == end_; }
  std::uint8_t byte() { return is_empty() ? std::uint8_t{0} : *at_++; }
  // 0 to `limit` - 1, from one byte or two.
  std::size_t below(std::size_t limit) {
    std::size_t value = byte();
    if (limit > 256) value = value << 8 | byte();
    return value % limit;
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

}  // namespace ts::fuzz
