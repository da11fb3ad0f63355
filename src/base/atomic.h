// Memory that threads share, by names that the models (tests/models) replace. There, accesses to an
// Atomic are scheduled, those to a Plain are checked for data races, and a fork may cut in at each.
#pragma once

#include <atomic>
#include <type_traits>

namespace ts {

template <class T>
using Atomic = std::atomic<T>;

// Memory that one thread at a time touches.
template <class T>
using Plain = T;

[[gnu::always_inline]] inline void fence(std::memory_order order) noexcept {
  std::atomic_thread_fence(order);
}

// A store that no later view of the thread's memory shows without all stores before it.
template <class T>
[[gnu::always_inline]] inline void store_release(T& memory,
                                                 std::type_identity_t<T> value) noexcept {
  std::atomic_ref<T>{memory}.store(value, std::memory_order_release);
}

}  // namespace ts
