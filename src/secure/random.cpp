#include "secure/random.h"

#include <cstddef>

#include "os/entropy.h"

namespace ts::secure {
namespace {

// Four words of the cipher's state, one of each column.
using Row = std::uint32_t __attribute__((vector_size(16)));

template <int bits>
Row rotated(Row row) noexcept {
  return row << bits | row >> (32 - bits);
}

void quarter_rounds(Row (&rows)[4]) noexcept {
  rows[0] += rows[1];
  rows[3] = rotated<16>(rows[3] ^ rows[0]);
  rows[2] += rows[3];
  rows[1] = rotated<12>(rows[1] ^ rows[2]);
  rows[0] += rows[1];
  rows[3] = rotated<8>(rows[3] ^ rows[0]);
  rows[2] += rows[3];
  rows[1] = rotated<7>(rows[1] ^ rows[2]);
}

// Turns diagonals into columns, or back.
template <int step>
void shift_rows(Row (&rows)[4]) noexcept {
  rows[1] = __builtin_shufflevector(rows[1], rows[1], step, step + 1, step + 2, step + 3);
  rows[2] = __builtin_shufflevector(rows[2], rows[2], 2, 3, 0, 1);
  rows[3] = __builtin_shufflevector(rows[3], rows[3], 4 - step, 5 - step, 6 - step, 7 - step);
}

}  // namespace

void make_block(const ChaChaKey& key, std::uint32_t counter, void* block) noexcept {
  constexpr int double_rounds = 4;
  // "expand 32-byte k", key, counter, no nonce
  const Row start[4] = {{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574},
                        {key[0], key[1], key[2], key[3]},
                        {key[4], key[5], key[6], key[7]},
                        {counter, 0, 0, 0}};
  Row rows[4] = {start[0], start[1], start[2], start[3]};
  for (int i = 0; i < double_rounds; ++i) {
    quarter_rounds(rows);
    shift_rows<1>(rows);
    quarter_rounds(rows);
    shift_rows<3>(rows);
  }
  for (unsigned i = 0; i < 4; ++i) {
    const Row row = rows[i] + start[i];
    __builtin_memcpy(static_cast<std::byte*>(block) + i * sizeof row, &row, sizeof row);
  }
}

void Random::refill() noexcept {
  const std::uint32_t now = forks.load(std::memory_order_relaxed);
  ChaChaKey key;
  __builtin_memcpy(key, stream_, sizeof key);
  if (forks_ != now) os::fill_with_entropy(key, sizeof key);
  forks_ = now;
  for (unsigned i = 0; i < blocks; ++i)
    make_block(key, i, reinterpret_cast<std::byte*>(stream_) + i * sizeof(ChaChaBlock));
  left_ = stream_numbers - key_numbers;
}

}  // namespace ts::secure
