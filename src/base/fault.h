// The result of checking invariants: the one that does not hold, and where.
#pragma once

namespace ts {

struct Fault {
  const char* equation = nullptr;  // null: no fault
  const void* where = nullptr;

  explicit operator bool() const noexcept { return equation != nullptr; }
};

}  // namespace ts
