// Unpredictable random numbers: the ChaCha stream cipher with 8 rounds (Bernstein, 2008), keyed by
// the kernel. Each refill replaces the key with output of its own, so past numbers cannot be
// recovered from the state either (fast key erasure). Each user has its own generator, under its
// own lock. A zero-initialised generator is valid: it gets a key on first use, and a new one in the
// child of a fork.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace ts::secure {

using ChaChaKey = std::uint32_t[8];
using ChaChaBlock = std::uint32_t[16];

// Computes one block of the cipher's stream, as it is in memory.
void make_block(const ChaChaKey& key, std::uint32_t counter, void* block) noexcept;

class Random {
 public:
  // Uniformly distributed.
  std::uint16_t next() noexcept {
    if (left_ == 0 || forks_ != forks.load(std::memory_order_relaxed)) [[unlikely]]
      refill();
    return std::exchange(stream_[key_numbers + --left_], std::uint16_t{0});
  }
  std::uint64_t next_64() noexcept {
    std::uint64_t number = 0;
    for (int i = 0; i < 4; ++i) number = number << 16 | next();
    return number;
  }
  // Uniform in [0, limit), limit <= 2^16 (Lemire, Fast random integer generation in an interval,
  // 2019: draws that would bias the result are repeated).
  std::uint32_t below(std::uint32_t limit) noexcept {
    std::uint32_t product = next() * limit;
    if ((product & 0xffff) < limit) [[unlikely]] {
      const std::uint32_t surplus = 0x1'0000 % limit;
      while ((product & 0xffff) < surplus) product = next() * limit;
    }
    return product >> 16;
  }

  static bool is_child_of_fork() noexcept { return forks.load(std::memory_order_relaxed) != 1; }
  // For the child of a fork: makes every generator rekey, so that none continues the parent's
  // sequence.
  static void reset_after_fork() noexcept { forks.fetch_add(1, std::memory_order_relaxed); }

 private:
  static constexpr unsigned blocks = 4;
  static constexpr unsigned stream_numbers = blocks * sizeof(ChaChaBlock) / (sizeof(std::uint16_t));
  static constexpr unsigned key_numbers = sizeof(ChaChaKey) / (sizeof(std::uint16_t));

  void refill() noexcept;

  // Number of forks that led to this process, plus one. Relaxed: it only changes while there is one
  // thread.
  inline static constinit std::atomic<std::uint32_t> forks{1};

  std::uint32_t forks_;  // when the key was drawn; 0: no key yet
  std::uint32_t left_;   // how many numbers are unused: the first ones after the key
  // The last blocks of the stream. They begin with the next key, which is never handed out.
  std::uint16_t stream_[stream_numbers];
};

}  // namespace ts::secure
