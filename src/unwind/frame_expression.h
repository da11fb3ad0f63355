// Expressions of call frame information, as far as compilers and linkers write them: sums of a
// register and numbers, perhaps of a word in memory at such a sum. The program counter is known, so
// that the expression of a procedure linkage table is such a sum, too.
#pragma once

#include <cstdint>

#include "unwind/frame_registers.h"
#include "unwind/table_reader.h"

namespace ts::os {

struct FrameSum {
  std::uint64_t number = no_register;  // of DWARF; no_register: a plain number
  std::int64_t offset = 0;
  bool is_in_memory = false;  // the word there, and not the sum itself
};

// Reads the length and the operations. False if the value is none of these.
bool evaluate_frame_expression(TableReader& program, std::uintptr_t pc, FrameSum& value) noexcept;

}  // namespace ts::os
