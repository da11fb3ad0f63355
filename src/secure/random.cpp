#include "secure/random.h"

#include <bit>
#include <cstring>

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

// One block of the cipher's stream.
void make_block(const std::uint32_t (&key)[8], std::uint32_t counter, std::uint32_t* out) noexcept {
  constexpr int double_rounds = 4;
  // "expand 32-byte k"
  const std::uint32_t start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, key[0], key[1],
                                   key[2],     key[3],     key[4],     key[5],     key[6], key[7],
                                   counter,    0,          0,          0};
  std::uint32_t x[16];
  std::memcpy(x, start, sizeof x);
  for (int i = 0; i < double_rounds; ++i) {
    for (unsigned c = 0; c < 4; ++c) quarter_round(x[c], x[4 + c], x[8 + c], x[12 + c]);
    for (unsigned c = 0; c < 4; ++c)
      quarter_round(x[c], x[4 + (c + 1) % 4], x[8 + (c + 2) % 4], x[12 + (c + 3) % 4]);
  }
  for (unsigned i = 0; i < 16; ++i) out[i] = x[i] + start[i];
}

}  // namespace

void Random::refill() noexcept {
  const std::uint32_t now = forks.load(std::memory_order_relaxed);
  if (forks_ != now) os::fill_with_entropy(key_, sizeof key_);
  forks_ = now;
  for (unsigned i = 0; i < blocks; ++i) make_block(key_, i, words_ + i * block_words);
  // The last words are the next key, and are handed out to nobody.
  left_ = blocks * block_words - key_words;
  std::memcpy(key_, words_ + left_, sizeof key_);
  std::memset(words_ + left_, 0, sizeof key_);
}

}  // namespace ts::secure
