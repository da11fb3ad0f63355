// Steps from frame to frame.
#include "os/call_stack_walk.h"

#include "os/frame_tables.h"
#include "os/modules.h"
#include "os/row_cache.h"

namespace ts::os {
namespace {

// No register of a frame whose row does not tell: misaligned, so that nothing is read there.
constexpr std::uintptr_t lost_register = 1;

constexpr std::uintptr_t longest_step = std::uintptr_t{1} << 20;

#if defined(__x86_64__)
constexpr bool has_link_register = false;
#else
constexpr bool has_link_register = true;
#endif

std::uintptr_t moved(std::uintptr_t address, std::int32_t offset) noexcept {
  return address + static_cast<std::uintptr_t>(std::intptr_t{offset});
}

}  // namespace

FrameRow StackWalk::find_row(std::uintptr_t pc) noexcept {
  FrameRow row;
  // Where modules can be asked for, one that came to another one's place must be noticed first.
  const bool asks_first = can_find_modules();
  if (asks_first && !module_.contains(pc) && !module_at(pc, module_)) return row;
  if (row_cache::find(pc, row)) return row;
  if (!asks_first && !module_.contains(pc) && !module_at(pc, module_)) return row;
  row = find_frame_row({module_.begin, module_.end, module_.header}, pc);
  row_cache::add(pc, row);
  return row;
}

bool StackWalk::arrive(const Registers& caller, std::uintptr_t return_to) noexcept {
  at_ = caller;
  at_.pc = without_signature(return_to);
  is_exact_ = false;
  // The outermost function has nowhere to return to.
  is_outermost_ = at_.pc == 0;
  return !is_outermost_;
}

bool StackWalk::step_by_row(const FrameRow& row) noexcept {
  Registers caller = at_;
  const bool is_realigned = row.kind == FrameRow::Kind::realigned;
  const std::uintptr_t pointer = at_.saved[frame_pointer];
  std::uintptr_t base = at_.sp;
  if (row.base == FrameRow::Base::frame_pointer) base = pointer;
  if (row.base == FrameRow::Base::base_register) base = at_.saved[base_register];
  std::uintptr_t cfa = moved(base, row.cfa_offset);
  if (is_realigned && !memory_.load(cfa, cfa)) return false;
  if (cfa == at_.sp && !is_exact_) return false;
  caller.sp = cfa;
  if (is_realigned && !memory_.load(pointer, caller.saved[frame_pointer])) return false;
  for (unsigned i = 0; i < saved_registers; ++i) {
    const std::int32_t offset = row.saved[i];
    if (offset == FrameRow::unchanged) continue;
    const std::uintptr_t from = is_realigned && i != return_address ? pointer : cfa;
    if (offset == FrameRow::lost) {
      caller.saved[i] = lost_register;
    } else if (!memory_.load(moved(from, offset), caller.saved[i])) {
      return false;
    }
  }
  // A call has overwritten the link register.
  const bool is_in_register = row.saved[return_address] == FrameRow::unchanged;
  if (is_in_register && !(has_link_register && is_exact_)) return false;
  return arrive(caller, caller.saved[return_address]);
}

bool StackWalk::step_by_frame_pointer() noexcept {
  const std::uintptr_t pointer = at_.saved[frame_pointer];
  if (pointer == 0) {  // how the outermost frame is marked
    is_outermost_ = true;
    return false;
  }
  const std::uintptr_t pair = moved(pointer, pair_offset);
  if (pair < at_.sp || pair - at_.sp >= longest_step) return false;
  Registers caller = at_;
  std::uintptr_t return_to = 0;
  if (!memory_.load(pair, caller.saved[frame_pointer]) ||
      !memory_.load(pair + sizeof pair, return_to)) {
    return false;
  }
  caller.sp = pair + 2 * sizeof pair;
  caller.saved[base_register] = lost_register;
  return arrive(caller, return_to);
}

bool StackWalk::step_over_signal() noexcept {
  Registers interrupted{};
  if (!memory_.load(at_.sp + signal_frame.pc, interrupted.pc) ||
      !memory_.load(at_.sp + signal_frame.sp, interrupted.sp)) {
    return false;
  }
  for (unsigned i = 0; i < saved_registers; ++i) {
    const unsigned place = signal_frame.saved[i];
    if (place != 0 && !memory_.load(at_.sp + place, interrupted.saved[i])) return false;
  }
  at_ = interrupted;
  is_exact_ = true;
  return at_.pc != 0;
}

// Where no table helps, some code is known by its bytes.
bool StackWalk::step_by_code() noexcept {
  std::uint64_t code = 0;
  ReadableMemory text;
  if (text.load_code(at_.pc, code)) {
    if (code == signal_frame.code) return step_over_signal();
    if (code == context_end_code) {
      is_outermost_ = true;
      return false;
    }
  }
  return step_by_frame_pointer();
}

bool StackWalk::step() noexcept {
  const FrameRow row = find_row(is_exact_ ? at_.pc : at_.pc - 1);
  switch (row.kind) {
    case FrameRow::Kind::usual:
    case FrameRow::Kind::realigned:
      return step_by_row(row);
    case FrameRow::Kind::outermost:
      is_outermost_ = true;
      return false;
    case FrameRow::Kind::signal:
    case FrameRow::Kind::unknown:
      break;
  }
  return step_by_code();
}

}  // namespace ts::os
