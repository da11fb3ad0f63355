// Random numbers that cannot be foretold from others: the ChaCha stream cipher with 8 rounds
// (Bernstein, 2008), keyed by the kernel, whose output replaces its own key at each refill, so that
// past numbers cannot be found out from the state either (fast key erasure). One for each user of
// them, under that user's lock. A zero-initialised one is valid: it takes a key when it is first
// asked, and another one in the child of a fork.
#pragma once

#include <atomic>
#include <cstdint>

namespace ts::secure {

class Random {
 public:
  std::uint32_t next() noexcept {
    if (left_ == 0 || forks_ != forks.load(std::memory_order_relaxed)) [[unlikely]]
      refill();
    const std::uint32_t number = words_[--left_];
    words_[left_] = 0;
    return number;
  }
  std::uint64_t next_64() noexcept { return std::uint64_t{next()} << 32 | next(); }
  // Below `limit`, which is far below 2^32, so that no number is noticeably likelier than others.
  std::uint32_t below(std::uint32_t limit) noexcept {
    return static_cast<std::uint32_t>(std::uint64_t{next()} * limit >> 32);
  }

  // In the child of a fork: no generator goes on as it does in the parent.
  static void reset_after_fork() noexcept { forks.fetch_add(1, std::memory_order_relaxed); }

 private:
  static constexpr unsigned key_words = 8;
  static constexpr unsigned block_words = 16;
  static constexpr unsigned blocks = 4;

  void refill() noexcept;

  // One more than the forks that led to this process. Relaxed: changed only where there is one
  // thread.
  inline static constinit std::atomic<std::uint32_t> forks{1};

  std::uint32_t forks_;  // as of its key; 0: no key yet
  std::uint32_t left_;   // numbers that are left, the first ones
  std::uint32_t key_[key_words];
  std::uint32_t words_[blocks * block_words];
};

}  // namespace ts::secure
