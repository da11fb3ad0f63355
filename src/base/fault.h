// The result of a check of invariants: an equation that does not hold, and its place.
#pragma once

namespace ts {

struct Fault {
  const char* equation = nullptr;  // null: none was found
  const void* where = nullptr;

  explicit operator bool() const noexcept { return equation != nullptr; }
};

}  // namespace ts
