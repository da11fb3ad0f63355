// Reads hand-built .eh_frame tables: the meaning of each operation, unsupported input, and
// malformed tables.
#include "unwind/frame_tables.h"

#include <gtest/gtest.h>

#include "unit/frame_tables.h"

namespace ts::testing {
namespace {

using os::FrameRow;
using Kind = FrameRow::Kind;
using Base = FrameRow::Base;

constexpr unsigned sp = os::stack_pointer_number;
constexpr unsigned fp = os::saved_numbers[os::frame_pointer];
constexpr unsigned ra = os::saved_numbers[os::return_address];
constexpr unsigned bp = os::saved_numbers[os::base_register];
constexpr std::uint64_t unit = MadeTables::code_unit;

const Bytes usual_start = cfa::join({cfa::define(sp, 8), cfa::saved_at(ra, 1)});

FrameRow row(Base base, int cfa_offset, int frame, int address, int base_register) {
  return {Kind::usual, base, cfa_offset, {frame, address, base_register}};
}

// The row of a function's instruction, this many units past its start.
FrameRow row_of(const Bytes& program, unsigned units = 0, const Bytes& start = usual_start) {
  MadeTables made;
  made.add_function(made.add_common(start), made.code(), 64 * unit, program);
  return os::find_frame_row(made.tables(), made.code() + units * unit);
}

TEST(FrameTables, ARowHoldsFromItsInstructionOn) {
  const Bytes program =
      cfa::join({cfa::advance(1), cfa::define_offset(16), cfa::saved_at(fp, 2), cfa::advance(2),
                 cfa::define_register(fp), cfa::advance(60), cfa::define(sp, 8)});
  EXPECT_EQ(row_of(program, 0), row(Base::stack_pointer, 8, 0, -8, 0));
  EXPECT_EQ(row_of(program, 1), row(Base::stack_pointer, 16, -16, -8, 0));
  EXPECT_EQ(row_of(program, 2), row(Base::stack_pointer, 16, -16, -8, 0));
  EXPECT_EQ(row_of(program, 3), row(Base::frame_pointer, 16, -16, -8, 0));
  EXPECT_EQ(row_of(program, 62), row(Base::frame_pointer, 16, -16, -8, 0));
  EXPECT_EQ(row_of(program, 63), row(Base::stack_pointer, 8, -16, -8, 0));
}

TEST(FrameTables, AllFormsOfAdvancesAreKnown) {
  const Bytes program = cfa::join({{0x02, 2},
                                   cfa::define_offset(16),
                                   {0x03, 3, 0},
                                   cfa::define_offset(24),
                                   {0x04, 4, 0, 0, 0},
                                   cfa::define_offset(32)});
  EXPECT_EQ(row_of(program, 1).cfa_offset, 8);
  EXPECT_EQ(row_of(program, 2).cfa_offset, 16);
  EXPECT_EQ(row_of(program, 5).cfa_offset, 24);
  EXPECT_EQ(row_of(program, 9).cfa_offset, 32);
}

TEST(FrameTables, StatesAreRememberedInAStack) {
  const Bytes program = cfa::join({cfa::define_offset(32),
                                   cfa::saved_at(bp, 3),
                                   {0x0a},
                                   cfa::define_offset(48),
                                   {0x0a},
                                   cfa::define(fp, 64),
                                   cfa::advance(1),
                                   {0x0b},
                                   cfa::advance(1),
                                   {0x0b},
                                   cfa::advance(1),
                                   cfa::restore(bp)});
  EXPECT_EQ(row_of(program, 0), row(Base::frame_pointer, 64, 0, -8, -24));
  EXPECT_EQ(row_of(program, 1), row(Base::stack_pointer, 48, 0, -8, -24));
  EXPECT_EQ(row_of(program, 2), row(Base::stack_pointer, 32, 0, -8, -24));
  EXPECT_EQ(row_of(program, 3), row(Base::stack_pointer, 32, 0, -8, 0));
  EXPECT_EQ(row_of({0x0b}).kind, Kind::unknown) << "nothing was remembered";
  EXPECT_EQ(row_of(Bytes(9, 0x0a)).kind, Kind::unknown) << "too many";
}

TEST(FrameTables, RulesOfOtherRegistersAreReadOver) {
  const unsigned other = 12;
  const Bytes program = cfa::join({cfa::saved_at(other, 5),
                                   {0x05, other, 9},
                                   {0x08, other},
                                   {0x09, other, 3},
                                   {0x11, other, 4},
                                   {0x14, other, 4},
                                   {0x15, other, 4},
                                   {0x16, other, 2, 0x70, 0},
                                   cfa::saved_by(other, {0x96}),
                                   cfa::restore(other),
                                   {0x06, other},
                                   {0x07, other},
                                   {0x2d},
                                   {0x2e, 16},
                                   {0x2f, other, 2},
                                   {0},
                                   cfa::define_offset(40)});
  EXPECT_EQ(row_of(program), row(Base::stack_pointer, 40, 0, -8, 0));
}

TEST(FrameTables, SavedRegistersHaveSeveralForms) {
  EXPECT_EQ(row_of({0x05, fp, 3}).saved[os::frame_pointer], -24);
  EXPECT_EQ(row_of({0x11, fp, 0x7d}).saved[os::frame_pointer], 24);
  EXPECT_EQ(row_of({0x2f, fp, 2}).saved[os::frame_pointer], 16);
  EXPECT_EQ(row_of(cfa::join({cfa::saved_at(fp, 2), {0x08, fp}})).saved[os::frame_pointer], 0);
  EXPECT_EQ(row_of(cfa::join({cfa::saved_at(fp, 2), {0x06, fp}})).saved[os::frame_pointer], 0);
  EXPECT_EQ(row_of({0x12, sp, 0x7e}).cfa_offset, 16);
  EXPECT_EQ(row_of({0x13, 0x7d}).cfa_offset, 24);
  for (const Bytes& lost : {Bytes{0x07, fp}, Bytes{0x09, fp, 3}, Bytes{0x14, fp, 2},
                            Bytes{0x16, fp, 1, 0x30}, cfa::saved_by(fp, {0x96})}) {
    EXPECT_EQ(row_of(lost).saved[os::frame_pointer], FrameRow::lost);
  }
}

TEST(FrameTables, AnUndefinedReturnAddressIsOfTheOutermostFrame) {
  EXPECT_EQ(row_of(cfa::with_number(0x07, ra)).kind, Kind::outermost);
}

TEST(FrameTables, AReturnAddressThatIsNotOnTheStackIsUnknown) {
  EXPECT_EQ(row_of({0x09, ra, 3}).kind, Kind::unknown);
  EXPECT_EQ(row_of({0x14, ra, 2}).kind, Kind::unknown);
}

TEST(FrameTables, FramesOfOtherRegistersAreUnknown) {
  EXPECT_EQ(row_of(cfa::define(bp, 16)).base, Base::base_register);
  EXPECT_EQ(row_of(cfa::define(12, 16)).kind, Kind::unknown);
  EXPECT_EQ(row_of(cfa::define(sp, 12)).kind, Kind::unknown) << "misaligned";
  EXPECT_EQ(row_of(cfa::define(sp, std::uint64_t{1} << 40)).kind, Kind::unknown) << "too long";
}

TEST(FrameTables, ARealignedFrameIsFoundByItsFramePointer) {
  const Bytes program =
      cfa::join({cfa::saved_by(fp, cfa::sum(fp, 0)),
                 cfa::define_by(cfa::join({cfa::sum(fp, -24), {cfa::dereference}})),
                 cfa::saved_by(bp, cfa::sum(fp, -32))});
  const FrameRow expected{Kind::realigned, Base::frame_pointer, -24, {0, -8, -32}};
  EXPECT_EQ(row_of(program), expected);
  // Relative to a register, or to a frame pointer, which realigned frames do not have.
  EXPECT_EQ(row_of(cfa::define_by(cfa::join({cfa::sum(sp, 16), {cfa::dereference}}))).kind,
            Kind::unknown);
  EXPECT_EQ(row_of(cfa::define_by(cfa::join({cfa::sum(fp, 16), {cfa::dereference}}))).kind,
            Kind::unknown);
}

#if defined(__x86_64__)
// sp + 8 + ((pc & 15) >= 11) * 8, as linkers write it.
TEST(FrameTables, TheExpressionOfALinkageTableDependsOnTheInstruction) {
  const Bytes expression =
      cfa::join({cfa::sum(sp, 8), cfa::sum(16, 0), {0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}});
  MadeTables made;
  const std::uintptr_t begin = (made.code() + 15) & ~std::uintptr_t{15};
  made.add_function(made.add_common(usual_start), begin, 64, cfa::define_by(expression));
  const os::FrameTables tables = made.tables();
  EXPECT_EQ(os::find_frame_row(tables, begin + 10), row(Base::stack_pointer, 8, 0, -8, 0));
  EXPECT_EQ(os::find_frame_row(tables, begin + 11), row(Base::stack_pointer, 16, 0, -8, 0));
  EXPECT_EQ(os::find_frame_row(tables, begin + 16), row(Base::stack_pointer, 8, 0, -8, 0));
  EXPECT_EQ(os::find_frame_row(tables, begin + 63), row(Base::stack_pointer, 16, 0, -8, 0));
}
#endif

TEST(FrameTables, ExpressionsAreSumsOrUnknown) {
  const auto offset = [](const Bytes& expression) {
    const FrameRow found = row_of(cfa::define_by(expression));
    return found.kind == Kind::unknown ? -1 : found.cfa_offset;
  };
  EXPECT_EQ(offset(cfa::sum(sp, 64)), 64);
  EXPECT_EQ(offset(cfa::join({cfa::sum(sp, 64), {0x23, 0x80, 0x01}})), 192);
  EXPECT_EQ(offset(cfa::join({cfa::sum(sp, 64), {0x08, 200, 0x22}})), 264);
  EXPECT_EQ(offset(cfa::join({cfa::sum(sp, 64), {0x09, 0xf8, 0x22}})), 56);
  EXPECT_EQ(offset(cfa::join({cfa::sum(sp, 64), {0x0a, 0x00, 0x01, 0x22}})), 320);
  EXPECT_EQ(offset(cfa::join({cfa::sum(sp, 64), {0x0b, 0xf0, 0xff, 0x22}})), 48);
  EXPECT_EQ(offset(cfa::join({{0x38}, cfa::sum(sp, 64), {0x22}})), 72);
  EXPECT_EQ(offset(cfa::join({cfa::sum(sp, 64), {0x38, 0x1c}})), 56);
  for (const Bytes& unknown :
       {Bytes{}, Bytes{0x38}, Bytes{0x22}, Bytes{0x06}, Bytes{0x96}, Bytes{0xff},
        cfa::join({cfa::sum(sp, 8), cfa::sum(fp, 8), {0x22}}),
        cfa::join({cfa::sum(sp, 8), cfa::sum(fp, 8)}), cfa::join({cfa::sum(sp, 8), {0x38, 0x1a}}),
        cfa::join({cfa::sum(sp, 8), {0x06, 0x06}}), Bytes(7, 0x38),
        cfa::join({{0x31, 0x08, 64, 0x24}, cfa::sum(sp, 8), {0x22}})}) {
    EXPECT_EQ(offset(unknown), -1) << "of " << unknown.size() << " bytes";
  }
}

TEST(FrameTables, UnknownOperationsEndTheProgram) {
  for (const unsigned operation : {0x17, 0x1d, 0x30, 0x3f}) {
    EXPECT_EQ(row_of(cfa::with_number(static_cast<std::uint8_t>(operation), 0)).kind,
              Kind::unknown);
  }
}

TEST(FrameTables, TheFunctionIsSearchedByItsRange) {
  MadeTables made;
  const std::size_t common = made.add_common(usual_start);
  const std::uintptr_t code = made.code();
  for (unsigned i = 0; i < 9; ++i)
    made.add_function(common, code + i * 256, 128, cfa::define_offset(8 * (i + 2)));
  const os::FrameTables tables = made.tables();
  EXPECT_EQ(os::find_frame_row(tables, code - 1).kind, Kind::unknown);
  for (unsigned i = 0; i < 9; ++i) {
    const int offset = static_cast<int>(8 * (i + 2));
    EXPECT_EQ(os::find_frame_row(tables, code + i * 256).cfa_offset, offset);
    EXPECT_EQ(os::find_frame_row(tables, code + i * 256 + 127).cfa_offset, offset);
    EXPECT_EQ(os::find_frame_row(tables, code + i * 256 + 128).kind, Kind::unknown);
    EXPECT_EQ(os::find_frame_row(tables, code + i * 256 + 255).kind, Kind::unknown);
  }
  EXPECT_EQ(os::find_frame_row(MadeTables{}.tables(), code).kind, Kind::unknown)
      << "an empty table";
}

TEST(FrameTables, AugmentationsAreReadByTheirLetters) {
  const auto kind = [](const Bytes& letters, const Bytes& data, std::uint8_t version = 1) {
    MadeTables made;
    made.add_function(made.add_common(usual_start, letters, data, version), made.code(), 64, {});
    return os::find_frame_row(made.tables(), made.code()).kind;
  };
  EXPECT_EQ(kind({'z', 'P', 'L', 'R', 0}, {0x9b, 1, 2, 3, 4, 0x1b, 0x00}), Kind::usual);
  EXPECT_EQ(kind({'z', 'P', 'L', 'R', 0}, {0x00, 1, 2, 3, 4, 5, 6, 7, 8, 0x1b, 0x00}), Kind::usual);
  EXPECT_EQ(kind({'z', 'P', 'R', 0}, {0xff, 0x00}), Kind::usual);
  EXPECT_EQ(kind({'z', 'R', 'B', 'G', 0}, {0x00}), Kind::usual);
  EXPECT_EQ(kind({'z', 'R', 'S', 0}, {0x00}), Kind::signal);
  EXPECT_EQ(kind({'z', 'R', 0}, {0x00}, 3), Kind::usual);
  EXPECT_EQ(kind({'z', 'R', 0}, {0x00}, 2), Kind::unknown);
  EXPECT_EQ(kind({'z', 'R', 'X', 0}, {0x00}), Kind::unknown);
  EXPECT_EQ(kind({'e', 'h', 0}, {0x00}), Kind::unknown);
  EXPECT_EQ(kind({'z', 'R', 0}, {}), Kind::unknown) << "no data for R";
  EXPECT_EQ(kind({'z', 'R', 0}, {0x80}), Kind::unknown) << "indirect";
  EXPECT_EQ(kind({'z', 'R', 0}, {0x50}), Kind::unknown) << "aligned";
}

TEST(FrameRows, InOneWordAreTheSameAgain) {
  for (const Kind kind :
       {Kind::unknown, Kind::usual, Kind::realigned, Kind::signal, Kind::outermost}) {
    for (const Base base : {Base::stack_pointer, Base::frame_pointer, Base::base_register}) {
      for (const int cfa : {0, 8, -8, 16, 4096, 4'194'296, -4'194'296}) {
        for (const int saved : {0, -8, -16, 8, 8184, -8184, FrameRow::lost}) {
          const int other = saved == FrameRow::lost ? saved : -saved;
          const FrameRow expected{kind, base, cfa, {saved, other, saved}};
          const std::uint64_t word = os::pack(expected);
          ASSERT_NE(word, 0U);
          EXPECT_EQ(os::unpack(word), expected);
        }
      }
    }
  }
  EXPECT_EQ(os::pack(row(Base::stack_pointer, 12, 0, -8, 0)), 0U);
  EXPECT_EQ(os::pack(row(Base::stack_pointer, 1 << 23, 0, -8, 0)), 0U);
  EXPECT_EQ(os::pack(row(Base::stack_pointer, 16, 0, -8, -8192)), 0U);
}

}  // namespace
}  // namespace ts::testing
