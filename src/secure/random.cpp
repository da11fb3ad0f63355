#include "secure/random.h"

#include <bit>

#include "os/entropy.h"

namespace ts::secure {
namespace {

void quarter_round(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c,
                   std::uint32_t& d) noexcept {
  a += b;
  d = std::rotl(d ^ a, 16);
  c += d;
  b = std::rotl(b ^ c, 12);
  a += b;
  d = std::rotl(d ^ a, 8);
  c += d;
  b = std::rotl(b ^ c, 7);
}

}  // namespace

void make_block(const ChaChaKey& key, std::uint32_t counter, ChaChaBlock& block) noexcept {
  constexpr int double_rounds = 4;
  // "expand 32-byte k", key, counter, no nonce
  const ChaChaBlock start = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, key[0], key[1],
                             key[2],     key[3],     key[4],     key[5],     key[6], key[7],
                             counter,    0,          0,          0};
  for (unsigned i = 0; i < 16; ++i) block[i] = start[i];
  for (int i = 0; i < double_rounds; ++i) {
    for (unsigned c = 0; c < 4; ++c)
      quarter_round(block[c], block[4 + c], block[8 + c], block[12 + c]);
    for (unsigned c = 0; c < 4; ++c)
      quarter_round(block[c], block[4 + (c + 1) % 4], block[8 + (c + 2) % 4],
                    block[12 + (c + 3) % 4]);
  }
  for (unsigned i = 0; i < 16; ++i) block[i] += start[i];
}

void Random::refill() noexcept {
  const std::uint32_t now = forks.load(std::memory_order_relaxed);
  if (forks_ != now) os::fill_with_entropy(key_, sizeof key_);
  forks_ = now;
  ChaChaBlock made[blocks];
  for (unsigned i = 0; i < blocks; ++i) make_block(key_, i, made[i]);
  // The first words are the next key and are never handed out. (Plain loops, because the C library
  // is not called under a lock.)
  for (unsigned i = 0; i < key_words; ++i) key_[i] = made[0][i];
  for (unsigned i = 0; i < numbers; ++i) {
    const unsigned word = key_words + i / 2;
    numbers_[i] = static_cast<std::uint16_t>(made[word / 16][word % 16] >> (i % 2 * 16));
  }
  left_ = numbers;
}

}  // namespace ts::secure
