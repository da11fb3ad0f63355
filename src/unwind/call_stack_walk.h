// One walk up a stack from given registers: unwind() without reading the registers.
#pragma once

#include "os/loaded_modules.h"
#include "os/readable_memory.h"
#include "unwind/frame_row.h"

namespace ts::os {

class StackWalk {
 public:
  // The first page of the stack must be readable.
  explicit StackWalk(const Registers& start) noexcept : at_{start}, memory_{start.sp} {}

  // Moves to the caller's frame. False if there is none, or if it cannot be found.
  bool step() noexcept;

  std::uintptr_t pc() const noexcept { return at_.pc; }
  bool is_at_outermost() const noexcept { return is_outermost_; }
  // The module of the frame before the last step, if known.
  const LoadedModule& module() const noexcept { return module_; }

 private:
  // Whether pc is the instruction itself rather than the one after a call.
  enum class Exact : std::uint8_t { no, first, interrupted };

  FrameRow find_row(std::uintptr_t pc) noexcept;
  bool step_by_row(const FrameRow& row) noexcept;
  [[gnu::cold]] bool step_without_row() noexcept;
  [[gnu::cold]] bool step_by_frame_pointer() noexcept;
  [[gnu::cold]] bool step_over_signal() noexcept;
  bool arrive(std::uintptr_t return_to) noexcept;

  Registers at_;
  ReadableMemory memory_;
  LoadedModule module_;
  bool asks_linker_ = can_find_modules();
  Exact exact_ = Exact::first;
  bool is_outermost_ = false;
};

}  // namespace ts::os
