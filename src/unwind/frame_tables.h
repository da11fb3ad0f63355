// A module's frame tables: finds the row for a code address by the sorted table of .eh_frame_hdr
// and the entries of .eh_frame (Linux Standard Base Core 5, section 10.6). Rejects tables that are
// not sorted for a search, and never trusts a length.
#pragma once

#include <cstdint>

#include "os/readable_memory.h"
#include "unwind/frame_row.h"

namespace ts::os {

struct FrameTables {
  std::uintptr_t begin;  // of the module's memory, which contains all of its tables
  std::uintptr_t end;
  std::uintptr_t header;  // .eh_frame_hdr
};

// The row for the instruction at `pc`; its kind is unknown if there is none, or it is damaged.
FrameRow find_frame_row(const FrameTables& tables, std::uintptr_t pc) noexcept;

}  // namespace ts::os
