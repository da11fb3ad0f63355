// Memory shared by threads, under names that the models (tests/models) replace. There, accesses to
// an Atomic are scheduled, accesses to a Plain are checked for data races, and a fork may happen at
// any access.
#pragma once

#include <atomic>
#include <type_traits>

#include "base/platform.h"

namespace ts {

template <class T>
using Atomic = std::atomic<T>;

// Memory that only one thread at a time touches.
template <class T>
using Plain = T;

[[gnu::always_inline]] inline void fence(std::memory_order order) noexcept {
  std::atomic_thread_fence(order);
}

// A release store: whoever sees it, a forked child included, also sees all earlier stores of the
// thread.
template <class T>
[[gnu::always_inline]] inline void store_release(T& memory,
                                                 std::type_identity_t<T> value) noexcept {
  std::atomic_ref<T>{memory}.store(value, std::memory_order_release);
}

// Subtracts with such a store and returns the difference.
template <class T>
[[gnu::always_inline]] inline T sub_release(T& memory, std::type_identity_t<T> less) noexcept {
  if constexpr (keeps_stores_in_order) {  // in one instruction
    std::atomic_signal_fence(std::memory_order_release);
    return memory -= less;
  }
  const T left = memory - less;
  store_release(memory, left);
  return left;
}

}  // namespace ts
