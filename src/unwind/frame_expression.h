// Expressions of call frame information, as far as compilers and linkers write them: sums of a
// register and numbers, perhaps dereferenced. The program counter is known, so the expression of a
// procedure linkage table is such a sum, too.
#pragma once

#include <cstdint>

#include "unwind/frame_registers.h"
#include "unwind/table_reader.h"

namespace ts::os {

struct FrameSum {
  std::uint64_t number = no_register;  // a DWARF number; no_register: a plain number
  std::int64_t offset = 0;
  bool is_in_memory = false;  // the value is the word at the sum, not the sum itself
};

// Reads the length and the operations. False if the value is not of these forms.
bool evaluate_frame_expression(TableReader& program, std::uintptr_t pc, FrameSum& value) noexcept;

}  // namespace ts::os
