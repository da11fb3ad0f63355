// A module's tables of frames: from an address of code to its row, by the sorted table of
// .eh_frame_hdr and the entries of .eh_frame (Linux Standard Base Core 5, section 10.6). It refuses
// tables that are not sorted for a search, and never trusts a length.
#pragma once

#include <cstdint>

#include "os/readable_memory.h"
#include "unwind/frame_row.h"

namespace ts::os {

struct FrameTables {
  std::uintptr_t begin;  // of the module's memory, in which all of its tables lie
  std::uintptr_t end;
  std::uintptr_t header;  // .eh_frame_hdr
};

// The row of the instruction at `pc`; of an unknown kind if there is none, or it is damaged.
FrameRow find_frame_row(const FrameTables& tables, std::uintptr_t pc) noexcept;

}  // namespace ts::os
