// The operations of call frame programs, and the rows that their rules result in.
#include "unwind/frame_rules.h"

#include "unwind/frame_expression.h"

namespace ts::os {
namespace {

enum Operation : std::uint8_t {  // DW_CFA
  in_two_bits = 0xc0,            // of the first three, whose operand is in the bits below
  advance_by = 0x40,
  saved_at = 0x80,
  restore_one = 0xc0,

  nothing = 0x00,
  set_location = 0x01,
  advance_1 = 0x02,
  advance_2 = 0x03,
  advance_4 = 0x04,
  saved_at_extended = 0x05,
  restore_extended = 0x06,
  undefined = 0x07,
  same_value = 0x08,
  in_register = 0x09,
  remember_state = 0x0a,
  restore_state = 0x0b,
  define_cfa = 0x0c,
  define_cfa_register = 0x0d,
  define_cfa_offset = 0x0e,
  define_cfa_expression = 0x0f,
  expression = 0x10,
  saved_at_signed = 0x11,
  define_cfa_signed = 0x12,
  define_cfa_offset_signed = 0x13,
  value_offset = 0x14,
  value_offset_signed = 0x15,
  value_expression = 0x16,
  negate_signature = 0x2d,  // arm64's; return addresses are always used without it
  arguments_size = 0x2e,
  saved_at_negative = 0x2f,
};

std::int64_t product(std::uint64_t units, std::int64_t unit) noexcept {
  return static_cast<std::int64_t>(units * static_cast<std::uint64_t>(unit));
}

// Larger offsets of frames are damage.
constexpr std::int64_t most_offset = std::int64_t{1} << 30;
bool is_offset(std::int64_t bytes) noexcept {
  return bytes % 8 == 0 && bytes > -most_offset && bytes < most_offset;
}

}  // namespace

void FrameRules::advance(std::uint64_t units) noexcept { location_ += units * terms_.code_unit; }

void FrameRules::set(std::uint64_t number, Saved saved) noexcept {
  for (unsigned i = 0; i < saved_registers; ++i) {
    if (saved_numbers[i] == number) rules_.saved[i] = saved;
  }
}

void FrameRules::set_offset(std::uint64_t number, std::int64_t units) noexcept {
  set(number, {Saved::How::from_cfa, product(static_cast<std::uint64_t>(units), terms_.data_unit)});
}

void FrameRules::restore(std::uint64_t number) noexcept {
  for (unsigned i = 0; i < saved_registers; ++i) {
    if (saved_numbers[i] == number) rules_.saved[i] = common_.saved[i];
  }
}

// Saved at a sum. Realigned frames have the place relative to their frame pointer.
void FrameRules::set_expression(std::uint64_t number, TableReader& program) noexcept {
  FrameSum sum;
  const bool is_known = evaluate_frame_expression(program, pc_, sum) && !sum.is_in_memory &&
                        sum.number == saved_numbers[frame_pointer];
  set(number,
      is_known ? Saved{Saved::How::from_frame_pointer, sum.offset} : Saved{Saved::How::lost, 0});
}

void FrameRules::define_cfa_by_expression(TableReader& program) noexcept {
  FrameSum sum;
  if (!evaluate_frame_expression(program, pc_, sum)) sum.number = no_register;
  rules_.cfa_register = sum.number;
  rules_.cfa_offset = sum.offset;
  rules_.cfa_is_in_memory = sum.is_in_memory;
}

bool FrameRules::step_cfa(TableReader& program, std::uint8_t operation) noexcept {
  const bool is_signed = operation == define_cfa_signed || operation == define_cfa_offset_signed;
  if (operation != define_cfa_offset && operation != define_cfa_offset_signed)
    rules_.cfa_register = program.unsigned_number();
  if (operation != define_cfa_register) {
    rules_.cfa_offset =
        is_signed ? product(static_cast<std::uint64_t>(program.signed_number()), terms_.data_unit)
                  : static_cast<std::int64_t>(program.unsigned_number());
  }
  rules_.cfa_is_in_memory = false;
  return true;
}

bool FrameRules::step_extended(TableReader& program, std::uint8_t operation) noexcept {
  const std::uint64_t number = program.unsigned_number();
  switch (operation) {
    case saved_at_extended:
      set_offset(number, static_cast<std::int64_t>(program.unsigned_number()));
      return true;
    case saved_at_signed:
      set_offset(number, program.signed_number());
      return true;
    case saved_at_negative:
      set_offset(number, -static_cast<std::int64_t>(program.unsigned_number() & INT64_MAX));
      return true;
    case restore_extended:
      restore(number);
      return true;
    case undefined:
      set(number, {Saved::How::undefined, 0});
      return true;
    case same_value:
      set(number, {Saved::How::unchanged, 0});
      return true;
    case in_register:
    case value_offset:
    case value_offset_signed:
      program.unsigned_number();  // as long as a signed one
      set(number, {Saved::How::lost, 0});
      return true;
    case expression:
      set_expression(number, program);
      return true;
    case value_expression:
      program.skip(program.unsigned_number());
      set(number, {Saved::How::lost, 0});
      return true;
    case arguments_size:
      return true;
    default:
      return false;
  }
}

// Runs one operation; false if it is not supported.
bool FrameRules::step(TableReader& program) noexcept {
  const std::uint8_t operation = program.byte();
  const std::uint8_t low = operation & static_cast<std::uint8_t>(~in_two_bits);
  switch (operation & in_two_bits) {
    case advance_by:
      advance(low);
      return true;
    case saved_at:
      set_offset(low, static_cast<std::int64_t>(program.unsigned_number()));
      return true;
    case restore_one:
      restore(low);
      return true;
    default:
      break;
  }
  switch (operation) {
    case nothing:
    case negate_signature:
      return true;
    case set_location:
      location_ = program.pointer(terms_.pointer_encoding, 0);
      return true;
    case advance_1:
      advance(program.byte());
      return true;
    case advance_2:
      advance(program.read<std::uint16_t>());
      return true;
    case advance_4:
      advance(program.read<std::uint32_t>());
      return true;
    case remember_state:
      if (remembered_count_ == most_remembered) return false;
      remembered_[remembered_count_++] = rules_;
      return true;
    case restore_state:
      if (remembered_count_ == 0) return false;
      rules_ = remembered_[--remembered_count_];
      return true;
    case define_cfa:
    case define_cfa_register:
    case define_cfa_offset:
    case define_cfa_signed:
    case define_cfa_offset_signed:
      return step_cfa(program, operation);
    case define_cfa_expression:
      define_cfa_by_expression(program);
      return true;
    default:
      return step_extended(program, operation);
  }
}

bool FrameRules::run_common(TableReader program) noexcept {
  while (!program.is_at_end()) {
    if (!step(program)) return false;
  }
  common_ = rules_;
  return !program.failed();
}

bool FrameRules::run(TableReader program, std::uintptr_t begin) noexcept {
  location_ = begin;
  while (!program.is_at_end() && location_ <= pc_) {
    if (!step(program)) return false;
  }
  return !program.failed();
}

FrameRow FrameRules::usual_row() const noexcept {
  FrameRow row;
  if (rules_.cfa_register == stack_pointer_number) {
    row.base = FrameRow::Base::stack_pointer;
  } else if (rules_.cfa_register == saved_numbers[frame_pointer]) {
    row.base = FrameRow::Base::frame_pointer;
  } else if (rules_.cfa_register == saved_numbers[base_register]) {
    row.base = FrameRow::Base::base_register;
  } else {
    return {};
  }
  for (unsigned i = 0; i < saved_registers; ++i) {
    const Saved& saved = rules_.saved[i];
    if (saved.how == Saved::How::unchanged) continue;
    const bool is_known = saved.how == Saved::How::from_cfa && is_offset(saved.offset);
    // Callers save nothing at the CFA itself.
    row.saved[i] =
        is_known && saved.offset != 0 ? static_cast<std::int32_t>(saved.offset) : FrameRow::lost;
  }
  row.kind = FrameRow::Kind::usual;
  return row;
}

FrameRow FrameRules::realigned_row() const noexcept {
  const Saved& pointer = rules_.saved[frame_pointer];
  const Saved& address = rules_.saved[return_address];
  const Saved& base = rules_.saved[base_register];
  if (rules_.cfa_register != saved_numbers[frame_pointer] ||
      pointer.how != Saved::How::from_frame_pointer || pointer.offset != 0 ||
      address.how != Saved::How::from_cfa || !is_offset(address.offset)) {
    return {};
  }
  FrameRow row;
  row.kind = FrameRow::Kind::realigned;
  row.base = FrameRow::Base::frame_pointer;
  row.saved[return_address] = static_cast<std::int32_t>(address.offset);
  if (base.how != Saved::How::unchanged) {
    const bool is_known = base.how == Saved::How::from_frame_pointer && is_offset(base.offset);
    row.saved[base_register] =
        is_known && base.offset != 0 ? static_cast<std::int32_t>(base.offset) : FrameRow::lost;
  }
  return row;
}

FrameRow FrameRules::row() const noexcept {
  FrameRow row;
  if (rules_.saved[return_address].how == Saved::How::undefined) {
    row.kind = FrameRow::Kind::outermost;
    return row;
  }
  if (!is_offset(rules_.cfa_offset)) return row;
  row = rules_.cfa_is_in_memory ? realigned_row() : usual_row();
  if (row.saved[return_address] == FrameRow::lost) return {};
  if (row.kind != FrameRow::Kind::unknown)
    row.cfa_offset = static_cast<std::int32_t>(rules_.cfa_offset);
  return row;
}

}  // namespace ts::os
