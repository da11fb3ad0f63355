// Scheduled atomics for the models, found before src/base/atomic.h in the include path.
#pragma once

#include "checker.h"

namespace ts {

using testing::Atomic;
using testing::Plain;

inline void fence(std::memory_order order,
                  std::source_location where = std::source_location::current()) noexcept {
  testing::detail::fence(order, where);
}

// As in base/platform.h; the model has no dependency ordering, so this acquires.
inline std::size_t exclusive_or(std::uint32_t value, const Atomic<std::uint32_t>& other,
                                std::source_location where = std::source_location::current()) {
  return value ^ other.load(std::memory_order_acquire, where);
}

template <class T>
void store_release(Plain<T>& memory, std::type_identity_t<T> value,
                   std::source_location where = std::source_location::current()) noexcept {
  testing::detail::publish(where);
  memory = value;
}

template <class T>
T sub_release(Plain<T>& memory, std::type_identity_t<T> less,
              std::source_location where = std::source_location::current()) noexcept {
  const T left = memory - less;
  store_release(memory, left, where);
  return left;
}

}  // namespace ts
