// A number that one thread at a time changes (the holder of a lock, or the owner of a heap), and
// any thread may read for statistics. Changes use a relaxed load and a relaxed store: no locked
// instruction, no data race, no ordering.
#pragma once

#include <atomic>
#include <cstddef>

namespace ts {

class Counter {
 public:
  constexpr Counter() = default;
  operator std::size_t() const noexcept { return value_.load(std::memory_order_relaxed); }
  void operator+=(std::size_t n) noexcept { value_.store(*this + n, std::memory_order_relaxed); }
  void operator-=(std::size_t n) noexcept { value_.store(*this - n, std::memory_order_relaxed); }
  void operator++() noexcept { *this += 1; }
  void operator--() noexcept { *this -= 1; }
  void reset() noexcept { value_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::size_t> value_{0};
};

}  // namespace ts
