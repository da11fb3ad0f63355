// A stack machine whose values are sums.
#include "unwind/frame_expression.h"

namespace ts::os {
namespace {

enum ExpressionOperation : std::uint8_t {  // DW_OP
  dereference = 0x06,
  constant_1u = 0x08,
  constant_1s = 0x09,
  constant_2u = 0x0a,
  constant_2s = 0x0b,
  bitwise_and = 0x1a,
  minus = 0x1c,
  plus = 0x22,
  plus_number = 0x23,
  shift_left = 0x24,
  is_at_least = 0x2a,
  literal_0 = 0x30,
  literal_31 = 0x4f,
  register_0 = 0x70,
  register_31 = 0x8f,
};

constexpr unsigned most_values = 6;

std::int64_t wrapped(std::uint64_t value) noexcept { return static_cast<std::int64_t>(value); }

// Adds two sums, one of which is a plain number. (In unsigned arithmetic, which wraps around.)
bool add(FrameSum& to, const FrameSum& what) noexcept {
  if (to.number != no_register && what.number != no_register) return false;
  if (to.is_in_memory || what.is_in_memory) return false;
  if (to.number == no_register) to.number = what.number;
  to.offset =
      wrapped(static_cast<std::uint64_t>(to.offset) + static_cast<std::uint64_t>(what.offset));
  return true;
}

// For plain numbers.
bool combine(std::uint8_t operation, FrameSum& left, const FrameSum& right) noexcept {
  if (operation == plus) return add(left, right);
  if (right.number != no_register || right.is_in_memory || left.is_in_memory) return false;
  const auto a = static_cast<std::uint64_t>(left.offset);
  const auto b = static_cast<std::uint64_t>(right.offset);
  if (operation == minus) {
    left.offset = wrapped(a - b);
    return true;
  }
  if (left.number != no_register) return false;
  if (operation == bitwise_and) {
    left.offset = wrapped(a & b);
  } else if (operation == is_at_least) {
    left.offset = left.offset >= right.offset ? 1 : 0;
  } else if (b < 64) {
    left.offset = wrapped(a << b);
  } else {
    return false;
  }
  return true;
}

// The value that an operation pushes; false if it pushes nothing that is supported here.
bool pushed(std::uint8_t operation, TableReader& program, std::uintptr_t pc,
            FrameSum& value) noexcept {
  if (operation >= literal_0 && operation <= literal_31) {
    value.offset = operation - literal_0;
  } else if (operation >= register_0 && operation <= register_31) {
    const unsigned number = operation - register_0;
    value.offset = program.signed_number();
    if (number == pc_number) {
      value.offset = wrapped(pc + static_cast<std::uint64_t>(value.offset));
    } else {
      value.number = number;
    }
  } else if (operation == constant_1u) {
    value.offset = program.byte();
  } else if (operation == constant_1s) {
    value.offset =
        std::int64_t{program.read<std::int8_t>()};  // NOLINT(bugprone-signed-char-misuse)
  } else if (operation == constant_2u) {
    value.offset = program.read<std::uint16_t>();
  } else if (operation == constant_2s) {
    value.offset = program.read<std::int16_t>();
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool evaluate_frame_expression(TableReader& program, std::uintptr_t pc, FrameSum& value) noexcept {
  const std::uint64_t bytes = program.unsigned_number();
  TableReader expression = program;
  expression.limit(bytes);
  program.skip(bytes);
  FrameSum values[most_values];
  unsigned count = 0;
  while (!expression.is_at_end()) {
    const std::uint8_t operation = expression.byte();
    FrameSum next;
    if (pushed(operation, expression, pc, next)) {
      if (count == most_values) return false;
      values[count++] = next;
    } else if (count != 0 && operation == dereference) {
      if (values[count - 1].is_in_memory) return false;
      values[count - 1].is_in_memory = true;
    } else if (count != 0 && operation == plus_number) {
      next.offset = wrapped(expression.unsigned_number());
      if (!add(values[count - 1], next)) return false;
    } else if (operation == plus || operation == minus || operation == bitwise_and ||
               operation == shift_left || operation == is_at_least) {
      if (count < 2 || !combine(operation, values[count - 2], values[count - 1])) return false;
      --count;
    } else {
      return false;
    }
  }
  if (count != 1 || expression.failed()) return false;
  value = values[0];
  return true;
}

}  // namespace ts::os
