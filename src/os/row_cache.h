// Rows that were found before, by the address of the instruction: two tables of words in .bss, which
// cost no memory before the first stack. It refuses to know whether a row is still true.
#pragma once

#include "os/frame_row.h"

namespace ts::os::row_cache {

// Whether a row of the address, which is not 0, is known.
bool find(std::uintptr_t pc, FrameRow& row) noexcept;
void add(std::uintptr_t pc, const FrameRow& row) noexcept;
// Forgets which row belongs to which address. A thread that adds one meanwhile has that code on its
// stack, so that its row stays true.
void clear() noexcept;

}  // namespace ts::os::row_cache
