// Eight bytes a step, by tables that the compiler makes.

#include <array>

#include "trace/format/bytes.h"

namespace ts::trace {
namespace {

constexpr std::uint32_t polynomial = 0x82f6'3b78;  // 0x1edc6f41 with its bits reversed

using Table = std::array<std::uint32_t, 256>;

// tables[k][b]: what byte b does to the sum when k bytes follow it.
constexpr std::array<Table, 8> make_tables() {
  std::array<Table, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? polynomial : 0);
    tables[0][byte] = sum;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t sum = tables[k - 1][byte];
      tables[k][byte] = (sum >> 8) ^ tables[0][sum & 0xff];
    }
  }
  return tables;
}

constexpr std::array<Table, 8> tables = make_tables();

}  // namespace

std::uint32_t crc32c(ByteSpan bytes) {
  std::uint32_t sum = ~0U;
  const std::uint8_t* at = bytes.data();
  std::size_t remaining = bytes.size();
  for (; remaining >= 8; remaining -= 8, at += 8) {
    const std::uint64_t word = load<std::uint64_t>(at) ^ sum;
    sum = 0;
    for (std::size_t k = 0; k < 8; ++k) sum ^= tables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; remaining > 0; --remaining, ++at) sum = (sum >> 8) ^ tables[0][(sum ^ *at) & 0xff];
  return ~sum;
}

}  // namespace ts::trace
