// Searches .eh_frame_hdr and reads the entries of .eh_frame.
#include "unwind/frame_tables.h"

#include "unwind/frame_rules.h"
#include "unwind/table_reader.h"

namespace ts::os {
namespace {

// Longer programs are treated as damage: one of this length takes a millisecond.
constexpr std::uint64_t most_entry_bytes = std::uint64_t{1} << 20;

// The part that entries of functions share (CIE).
struct Common {
  FrameProgramTerms terms;
  bool has_lengths = false;  // augmentation data, preceded by its length
  bool is_of_signals = false;
  std::uintptr_t program = 0;
  std::uintptr_t program_end = 0;
};

// A reader of an entry, from after its length.
TableReader entry_at(const FrameTables& tables, ReadableMemory& memory,
                     std::uintptr_t at) noexcept {
  if (at < tables.begin) at = tables.end;
  TableReader entry{memory, at, tables.end};
  const std::uint64_t bytes = entry.read<std::uint32_t>();
  if (bytes == 0 ||
      bytes > most_entry_bytes) {  // the terminator, or 64-bit DWARF, which nobody writes
    entry.fail();
  } else {
    entry.limit(bytes);
  }
  return entry;
}

// Reads the letters of an augmentation and their data; false if a letter is unknown.
bool read_augmentation(TableReader& entry, TableReader letters, Common& common) noexcept {
  const std::uint64_t bytes = entry.unsigned_number();
  TableReader data = entry;
  data.limit(bytes);
  entry.skip(bytes);
  for (std::uint8_t letter = letters.byte(); letter != 0; letter = letters.byte()) {
    switch (letter) {
      case 'R':
        common.terms.pointer_encoding = data.byte();
        break;
      case 'P': {
        const std::uint8_t encoding = data.byte();
        if (encoding != pointer_encoding::omitted) data.formatted(encoding);
        break;
      }
      case 'L':
        data.byte();
        break;
      case 'S':
        common.is_of_signals = true;
        break;
      case 'B':  // arm64: which key signs return addresses; whether memory is tagged
      case 'G':
        break;
      default:
        return false;
    }
  }
  return !data.failed();
}

bool read_common(const FrameTables& tables, ReadableMemory& memory, std::uintptr_t at,
                 Common& common) noexcept {
  TableReader entry = entry_at(tables, memory, at);
  if (entry.read<std::uint32_t>() != 0) return false;
  const std::uint8_t version = entry.byte();
  if (version != 1 && version != 3) return false;
  TableReader letters = entry;
  while (entry.byte() != 0) {
  }
  common.terms.code_unit = entry.unsigned_number();
  common.terms.data_unit = entry.signed_number();
  const std::uint64_t address_register = version == 1 ? entry.byte() : entry.unsigned_number();
  if (entry.failed() || address_register != saved_numbers[return_address]) return false;
  const std::uint8_t first = letters.byte();
  if (first == 'z') {
    common.has_lengths = true;
    if (!read_augmentation(entry, letters, common)) return false;
  } else if (first != 0) {
    return false;
  }
  common.program = entry.at();
  common.program_end = entry.end();
  return !entry.failed();
}

FrameRow row_of_entry(const FrameTables& tables, ReadableMemory& memory, std::uintptr_t at,
                      std::uintptr_t pc) noexcept {
  TableReader entry = entry_at(tables, memory, at);
  const std::uintptr_t place = entry.at();
  const std::uint64_t back = entry.read<std::uint32_t>();
  Common common;
  if (back == 0 || entry.failed() || !read_common(tables, memory, place - back, common)) return {};
  const std::uint8_t encoding = common.terms.pointer_encoding;
  const std::uintptr_t begin = entry.pointer(encoding, 0);
  const std::uint64_t bytes = entry.formatted(encoding & pointer_encoding::format_mask);
  if (common.has_lengths) entry.skip(entry.unsigned_number());
  if (entry.failed() || pc - begin >= bytes) return {};
  if (common.is_of_signals) {
    FrameRow row;
    row.kind = FrameRow::Kind::signal;
    return row;
  }
  FrameRules rules{common.terms, pc};
  const TableReader first{memory, common.program, common.program_end};
  if (!rules.run_common(first) || !rules.run(entry, begin)) return {};
  return rules.row();
}

// Pairs of a function's address and that of its entry, relative to the header, sorted by the first.
struct SearchTable {
  std::uintptr_t pairs = 0;
  std::uint64_t count = 0;
};
constexpr std::uint64_t pair_bytes = 8;

SearchTable read_header(const FrameTables& tables, ReadableMemory& memory) noexcept {
  TableReader header{memory, tables.header, tables.end};
  const std::uint8_t version = header.byte();
  const std::uint8_t entries_encoding = header.byte();
  const std::uint8_t count_encoding = header.byte();
  const std::uint8_t pair_encoding = header.byte();
  constexpr std::uint8_t known = pointer_encoding::data_relative | pointer_encoding::signed_4;
  if (version != 1 || count_encoding == pointer_encoding::omitted || pair_encoding != known)
    return {};
  if (entries_encoding != pointer_encoding::omitted) header.formatted(entries_encoding);
  const std::uint64_t count = header.pointer(count_encoding, tables.header);
  if (header.failed() || count > (tables.end - header.at()) / pair_bytes) return {};
  return {header.at(), count};
}

// A word of a pair; 0 (which is the header) if it cannot be read.
std::uintptr_t word_of_pair(const FrameTables& tables, ReadableMemory& memory,
                            std::uintptr_t at) noexcept {
  TableReader word{memory, at, tables.end};
  return tables.header + static_cast<std::uintptr_t>(std::intptr_t{word.read<std::int32_t>()});
}

}  // namespace

FrameRow find_frame_row(const FrameTables& tables, std::uintptr_t pc) noexcept {
  if (tables.header < tables.begin || tables.header >= tables.end) return {};
  ReadableMemory memory;
  const SearchTable table = read_header(tables, memory);
  std::uint64_t first = 0;  // after the last one that begins at or before pc
  std::uint64_t last = table.count;
  while (first < last) {
    const std::uint64_t middle = first + (last - first) / 2;
    if (word_of_pair(tables, memory, table.pairs + middle * pair_bytes) <= pc) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  if (first == 0) return {};
  const std::uintptr_t pair = table.pairs + (first - 1) * pair_bytes;
  return row_of_entry(tables, memory, word_of_pair(tables, memory, pair + 4), pc);
}

}  // namespace ts::os
