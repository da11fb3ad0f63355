// Interprets any bytes as unwind tables, and as a stack. The unwinder's reader finds a row or none,
// within the given bounds. A walk over a stack of any words ends, within 64 frames and without a
// fault.
//
// Tables are made from an input in three ways: as they are; as the programs of well-formed entries;
// and as those, with some bytes changed. They are copied to a block of exactly their length, so
// that AddressSanitizer sees reads past the end.
#include "unwind/frame_tables.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "fuzz/input.h"
#include "fuzz/target.h"
#include "unit/frame_tables.h"
#include "unwind/call_stack_walk.h"
#include "unwind/unwind.h"

namespace ts::fuzz {
namespace {

using os::FrameRow;
using testing::Bytes;
using testing::MadeTables;
namespace cfa = testing::cfa;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  std::abort();
}

unsigned long rows_of_kind[6];
unsigned long whole_walks = 0;
unsigned long steps_taken = 0;

void check_row(const FrameRow& row) {
  const auto kind = static_cast<unsigned>(row.kind);
  require(kind >= 1 && kind <= 5, "a row has a kind");
  ++rows_of_kind[kind];
  require(row.cfa_offset % 8 == 0, "a frame is aligned");
  for (const std::int32_t saved : row.saved)
    require(saved == FrameRow::lost || saved % 8 == 0, "a saved register is aligned");
  const std::uint64_t packed = os::pack(row);
  require(packed == 0 || os::unpack(packed) == row, "a row in one word is the same again");
}

// Searches a copy in a block of exactly that length. The tables can be copied, since their
// addresses are relative to their header.
void search(const Bytes& bytes, std::size_t header, std::intptr_t pc_from_header) {
  const auto copy = std::make_unique<std::uint8_t[]>(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.get(), bytes.data(), bytes.size());
  const auto begin = reinterpret_cast<std::uintptr_t>(copy.get());
  const os::FrameTables tables{begin, begin + bytes.size(), begin + header};
  check_row(
      os::find_frame_row(tables, tables.header + static_cast<std::uintptr_t>(pc_from_header)));
}

Bytes rest_of(Input& input, std::size_t most) {
  Bytes bytes;
  while (!input.is_empty() && bytes.size() < most) bytes.push_back(input.byte());
  return bytes;
}

void search_raw(Input& input) {
  const std::size_t header = input.byte() % 16;
  const std::size_t distance = input.below(65536);
  const Bytes bytes = rest_of(input, 2048);
  search(bytes, header, static_cast<std::intptr_t>(distance) - 1024);
}

void search_made(Input& input, bool is_changed) {
  MadeTables made;
  const std::uintptr_t code = made.code();
  const Bytes start = cfa::join({cfa::define(os::stack_pointer_number, 8),
                                 cfa::saved_at(os::saved_numbers[os::return_address], 1)});
  const bool has_usual_start = input.byte() % 4 != 0;
  const Bytes common_program = has_usual_start ? start : rest_of(input, input.byte() % 32);
  // Pointers relative to their place, since the tables move.
  const std::size_t common = input.byte() % 8 == 0
                                 ? made.add_raw_common(rest_of(input, 24))
                                 : made.add_common(common_program, {'z', 'R', 0}, {0x1c});
  const std::size_t functions = 1 + input.byte() % 4;
  for (std::size_t i = 0; i < functions; ++i) {
    made.add_relative_function(common, code + i * 1024, 1024, rest_of(input, input.below(300)));
  }
  const os::FrameTables tables = made.tables();
  const std::size_t offset = input.below(static_cast<std::size_t>(4 * 1024));
  for (unsigned changes = is_changed ? 1 + input.byte() % 8 : 0; changes != 0; --changes)
    made.bytes()[input.below(made.bytes().size())] = input.byte();
  search(made.bytes(), 0, static_cast<std::intptr_t>(code - tables.header + offset));
}

// Two pages of stack with nothing mapped after them.
constexpr std::size_t page = 4096;
std::uintptr_t stack_begin = 0;

// A word of interest to walks: in code, on the stack, small, or any.
std::uintptr_t word_of(Input& input) {
  const auto code = reinterpret_cast<std::uintptr_t>(&LLVMFuzzerTestOneInput);
  const auto library = reinterpret_cast<std::uintptr_t>(&std::abort);
  std::uintptr_t any = 0;
  switch (input.byte() % 8) {
    case 0:
    case 1:
      return code - 32768 + input.below(65536);
    case 2:
      return library - 32768 + input.below(65536);
    case 3:
    case 4:
      return stack_begin + 8 * input.below(2 * page / 8 + 8);
    case 5:
      return input.byte();
    default:
      for (unsigned i = 0; i < 8; ++i) any = any << 8 | input.byte();
      return any;
  }
}

void walk(Input& input) {
  os::Registers registers{word_of(input), stack_begin + 8 * input.below(64), {}};
  for (std::uintptr_t& saved : registers.saved) saved = word_of(input);
  auto* const words = reinterpret_cast<std::uintptr_t*>(stack_begin);
  for (std::size_t i = 0; i < 2 * page / sizeof *words; ++i)
    words[i] = input.is_empty() ? words[i] : word_of(input);
  os::StackWalk walk{registers};
  for (unsigned steps = 0; steps < os::max_stack_frames && walk.step(); ++steps) ++steps_taken;
  whole_walks += walk.is_at_outermost() ? 1 : 0;
}

}  // namespace

bool report_totals() {
  std::printf("rows: %lu unknown, %lu usual, %lu realigned, %lu of signals, %lu outermost\n",
              rows_of_kind[1], rows_of_kind[2], rows_of_kind[3], rows_of_kind[4], rows_of_kind[5]);
  std::printf("walks: %lu steps, %lu to the end\n", steps_taken, whole_walks);
  return rows_of_kind[1] != 0 && rows_of_kind[2] != 0 && steps_taken != 0;
}

}  // namespace ts::fuzz

int LLVMFuzzerInitialize(int*, char***) {
  ts::os::refresh_modules();
  // A page without access after it, since something else may be mapped there.
  void* const memory =
      ::mmap(nullptr, 3 * ts::fuzz::page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ts::fuzz::require(memory != MAP_FAILED, "there is memory for a stack");
  ts::fuzz::require(::mprotect(memory, 2 * ts::fuzz::page, PROT_READ | PROT_WRITE) == 0,
                    "mprotect");
  ts::fuzz::stack_begin = reinterpret_cast<std::uintptr_t>(memory);
  return 0;
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ts::fuzz::Input input{data, size};
  errno = 7;
  switch (input.byte() % 5) {
    case 0:
      ts::fuzz::search_raw(input);
      break;
    case 1:
    case 2:
      ts::fuzz::search_made(input, false);
      break;
    case 3:
      ts::fuzz::search_made(input, true);
      break;
    default:
      ts::fuzz::walk(input);
  }
  ts::fuzz::require(errno == 7, "errno is kept");
  return 0;
}
