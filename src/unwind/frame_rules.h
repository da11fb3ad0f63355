// The interpreter of call frame information (DWARF 5, section 6.4): it runs the program of one
// function up to an address, and tracks the rules for the registers that the unwinder follows.
#pragma once

#include <cstdint>

#include "unwind/frame_row.h"
#include "unwind/table_reader.h"

namespace ts::os {

// The parameters of a program, from its CIE.
struct FrameProgramTerms {
  std::uint64_t code_unit = 1;
  std::int64_t data_unit = 1;
  std::uint8_t pointer_encoding = pointer_encoding::absolute;
};

class FrameRules {
 public:
  // Computes the row for the instruction at `pc`.
  FrameRules(const FrameProgramTerms& terms, std::uintptr_t pc) noexcept : terms_{terms}, pc_{pc} {}

  // Runs the program that functions share, then that of one function, which begins at `begin`.
  // False if it is damaged or not supported.
  bool run_common(TableReader program) noexcept;
  bool run(TableReader program, std::uintptr_t begin) noexcept;

  // The row; unknown if some rule is not supported.
  FrameRow row() const noexcept;

 private:
  struct Saved {
    enum class How : std::uint8_t { unchanged, from_cfa, from_frame_pointer, undefined, lost };
    How how = How::unchanged;
    std::int64_t offset = 0;
  };
  struct Rules {
    std::uint64_t cfa_register = no_register;
    std::int64_t cfa_offset = 0;
    bool cfa_is_in_memory = false;  // the CFA is the word there, not the sum itself
    Saved saved[saved_registers];
  };
  static constexpr unsigned most_remembered = 8;

  bool step(TableReader& program) noexcept;
  bool step_extended(TableReader& program, std::uint8_t operation) noexcept;
  bool step_cfa(TableReader& program, std::uint8_t operation) noexcept;
  void advance(std::uint64_t units) noexcept;
  void set(std::uint64_t number, Saved saved) noexcept;
  void set_offset(std::uint64_t number, std::int64_t units) noexcept;
  void restore(std::uint64_t number) noexcept;
  void set_expression(std::uint64_t number, TableReader& program) noexcept;
  void define_cfa_by_expression(TableReader& program) noexcept;
  FrameRow usual_row() const noexcept;
  FrameRow realigned_row() const noexcept;

  FrameProgramTerms terms_;
  std::uintptr_t pc_;
  std::uintptr_t location_ = 0;
  Rules rules_;
  Rules common_;
  Rules remembered_[most_remembered];
  unsigned remembered_count_ = 0;
};

}  // namespace ts::os
