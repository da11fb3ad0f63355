// Reads ELF headers in memory, which may belong to a damaged file.
#include "unwind/module_file.h"

#include <elf.h>
#include <link.h>

#include <cstring>

#include "base/bits.h"
#include "unwind/table_reader.h"

namespace ts::os {
namespace {

using Segment = ElfW(Phdr);
constexpr unsigned most_segments = 128;

// The table of segments, and the offset to add to their addresses.
struct Segments {
  std::uintptr_t table = 0;
  unsigned count = 0;
  std::uintptr_t bias = 0;
};

[[gnu::noinline]] bool read_segment(const LoadedModule& loaded, const Segments& segments,
                                    unsigned number, ReadableMemory& memory,
                                    Segment& segment) noexcept {
  TableReader reader{memory, segments.table + number * sizeof segment, loaded.end};
  segment = reader.read<Segment>();
  return !reader.failed();
}

bool read_elf_header(const LoadedModule& loaded, ReadableMemory& memory,
                     Segments& segments) noexcept {
  TableReader reader{memory, loaded.begin, loaded.end};
  const auto header = reader.read<ElfW(Ehdr)>();
  if (reader.failed() || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Segment) ||
      header.e_phnum > most_segments || header.e_phoff > loaded.end - loaded.begin) {
    return false;
  }
  segments.table = loaded.begin + header.e_phoff;
  segments.count = header.e_phnum;
  // The module begins with its lowest segment.
  std::uintptr_t lowest = UINTPTR_MAX;
  for (unsigned i = 0; i < segments.count; ++i) {
    Segment segment;
    if (!read_segment(loaded, segments, i, memory, segment)) return false;
    if (segment.p_type == PT_LOAD && segment.p_vaddr < lowest) lowest = segment.p_vaddr;
  }
  segments.bias = loaded.begin - align_down(lowest, least_page_bytes);
  return lowest != UINTPTR_MAX;
}

// Its address, or 0.
std::uintptr_t find_build_id(TableReader notes, std::size_t alignment, Module& module) noexcept {
  while (!notes.is_at_end()) {
    const auto note = notes.read<ElfW(Nhdr)>();
    const bool is_gnu = note.n_namesz == 4 && notes.read<std::uint32_t>() == 0x00554e47;  // "GNU"
    if (!is_gnu) notes.skip(align_up(note.n_namesz, alignment));
    if (is_gnu && note.n_type == NT_GNU_BUILD_ID && note.n_descsz <= sizeof module.build_id) {
      const std::uintptr_t place = notes.at();
      for (unsigned i = 0; i < note.n_descsz; ++i) module.build_id[i] = notes.byte();
      if (notes.failed()) return 0;
      module.build_id_bytes = note.n_descsz;
      return place;
    }
    notes.skip(align_up(note.n_descsz, alignment));
  }
  return 0;
}

void copy_path(const char* const* path, ReadableMemory& memory, Module& module) noexcept {
  const auto place = reinterpret_cast<std::uintptr_t>(path);
  if (path == nullptr || !memory.holds(place, sizeof *path)) return;
  const auto from = reinterpret_cast<std::uintptr_t>(*path);
  for (unsigned i = 0; i + 1 < sizeof module.path && memory.holds(from + i, 1); ++i) {
    module.path[i] = *reinterpret_cast<const char*>(from + i);
    if (module.path[i] == '\0') break;
  }
}

}  // namespace

std::uintptr_t describe_module(const LoadedModule& loaded, std::uintptr_t pc,
                               ReadableMemory& memory, Module& module) noexcept {
  module = Module{};
  module.begin = loaded.begin;
  module.end = loaded.end;
  copy_path(loaded.path, memory, module);
  Segments segments;
  std::uintptr_t build_id = 0;
  if (!read_elf_header(loaded, memory, segments)) return 0;
  bool has_code = false;
  for (unsigned i = 0; i < segments.count; ++i) {
    Segment segment;
    if (!read_segment(loaded, segments, i, memory, segment)) return build_id;
    const std::uintptr_t begin = segments.bias + segment.p_vaddr;
    if (begin < loaded.begin || begin > loaded.end || segment.p_memsz > loaded.end - begin)
      continue;
    if (segment.p_type == PT_NOTE && module.build_id_bytes == 0) {
      const TableReader notes{memory, begin, begin + segment.p_memsz};
      build_id = find_build_id(notes, segment.p_align == 8 ? 8 : 4, module);
    }
    const bool is_code = segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0;
    if (!is_code || (has_code && pc - begin >= segment.p_memsz)) continue;
    has_code = true;
    module.begin = align_down(begin, least_page_bytes);
    module.end = begin + segment.p_memsz;
    module.file_offset = align_down(segment.p_offset, least_page_bytes);
  }
  return build_id;
}

}  // namespace ts::os
