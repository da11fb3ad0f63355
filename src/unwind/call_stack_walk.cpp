// Steps from frame to frame.
#include "unwind/call_stack_walk.h"

#include "unwind/frame_tables.h"
#include "unwind/modules.h"
#include "unwind/row_cache.h"

namespace ts::os {
namespace {

// The value of a register that a row does not define: misaligned, so that nothing is read there.
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

// The caller's value of a register; false if it cannot be read.
[[gnu::always_inline]] inline bool restore(ReadableMemory& memory, std::uintptr_t& value,
                                           std::int32_t offset, std::uintptr_t from) noexcept {
  if (offset == FrameRow::unchanged) return true;
  if (offset != FrameRow::lost) [[likely]]
    return memory.load(moved(from, offset), value);
  value = lost_register;
  return true;
}

}  // namespace

// Where the linker can be asked for modules, a module loaded in place of another is noticed before
// a row is taken from the cache.
[[gnu::always_inline]] inline FrameRow StackWalk::find_row(std::uintptr_t pc) noexcept {
  if (asks_linker_ && !module_.contains(pc) && !module_at(pc, module_)) return {};
  const std::uint64_t packed = row_cache.find(pc);
  if (packed != 0) [[likely]]
    return unpack(packed);
  if (!module_.contains(pc) && !module_at(pc, module_)) return {};
  const FrameRow row = find_frame_row({module_.begin, module_.end, module_.header}, pc);
  row_cache.add(pc, row);
  return row;
}

[[gnu::always_inline]] inline bool StackWalk::arrive(std::uintptr_t return_to) noexcept {
  at_.pc = without_signature(return_to);
  exact_ = Exact::no;
  if (at_.pc >= least_page_bytes) [[likely]]
    return true;
  is_outermost_ = at_.pc == 0;  // which has no return address
  return false;
}

[[gnu::always_inline]] inline bool StackWalk::step_by_row(const FrameRow& row) noexcept {
  const std::uintptr_t pointer = at_.saved[frame_pointer];
  std::uintptr_t base = at_.sp;
  if (row.base == FrameRow::Base::frame_pointer) base = pointer;
  if (row.base == FrameRow::Base::base_register) base = at_.saved[base_register];
  std::uintptr_t cfa = moved(base, row.cfa_offset);
  std::uintptr_t saved_from = cfa;
  if (row.kind == FrameRow::Kind::realigned) [[unlikely]] {
    if (!memory_.load(cfa, cfa) || !memory_.load(pointer, at_.saved[frame_pointer])) return false;
    saved_from = pointer;
  }
  // A frame has at least its return address, unless that is in a register, which calls overwrite.
  std::uintptr_t return_to = at_.saved[return_address];
  if (exact_ == Exact::no || !has_link_register) {
    if (row.saved[return_address] == FrameRow::unchanged || cfa == at_.sp) return false;
  }
  at_.sp = cfa;
  return restore(memory_, return_to, row.saved[return_address], cfa) &&
         restore(memory_, at_.saved[frame_pointer], row.saved[frame_pointer], saved_from) &&
         restore(memory_, at_.saved[base_register], row.saved[base_register], saved_from) &&
         arrive(return_to);
}

bool StackWalk::step_by_frame_pointer() noexcept {
  // In a file's code without tables, an interrupted function may not have set up its frame yet.
  if (exact_ == Exact::interrupted && module_.contains(at_.pc)) return false;
  const std::uintptr_t pointer = at_.saved[frame_pointer];
  if (pointer == 0) {  // how the outermost frame is marked
    is_outermost_ = true;
    return false;
  }
  const std::uintptr_t pair = moved(pointer, pair_offset);
  std::uintptr_t return_to = 0;
  if (pair < at_.sp || pair - at_.sp >= longest_step ||
      !memory_.load(pair, at_.saved[frame_pointer]) ||
      !memory_.load(pair + sizeof pair, return_to)) {
    return false;
  }
  at_.sp = pair + 2 * sizeof pair;
  at_.saved[base_register] = lost_register;
  return arrive(return_to);
}

bool StackWalk::step_over_signal() noexcept {
  const std::uintptr_t frame = at_.sp;
  if (!memory_.load(frame + signal_frame.pc, at_.pc) ||
      !memory_.load(frame + signal_frame.sp, at_.sp)) {
    return false;
  }
  for (unsigned i = 0; i < saved_registers; ++i) {
    const unsigned place = signal_frame.saved[i];
    if (place != 0 && !memory_.load(frame + place, at_.saved[i])) return false;
  }
  exact_ = Exact::interrupted;
  return at_.pc != 0;
}

// Recognises some code by its bytes.
bool StackWalk::step_without_row() noexcept {
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
  const FrameRow row = find_row(exact_ == Exact::no ? at_.pc - 1 : at_.pc);
  if (row.kind == FrameRow::Kind::usual || row.kind == FrameRow::Kind::realigned) [[likely]]
    return step_by_row(row);
  is_outermost_ = row.kind == FrameRow::Kind::outermost;
  return !is_outermost_ && step_without_row();
}

}  // namespace ts::os
