// Finds the engine's note, and copies the page map; see engine_image.h.
#include "inspect/engine_image.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstring>

#include "core/address_range.h"

namespace ts {
namespace {

using engine::Inspection;
using engine::PageMap;

// ---- the note ----

// The address of the note's descriptor in a segment of notes; 0 if there is none.
std::uintptr_t find_in_notes(const Process& process, std::uintptr_t address, std::size_t bytes) {
  constexpr std::size_t max_bytes = 4096;
  alignas(8) char notes[max_bytes];
  bytes = std::min(bytes, max_bytes);
  if (!process.read(address, notes, bytes)) return 0;
  for (std::size_t at = 0; at + sizeof(ElfW(Nhdr)) <= bytes;) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes + at, sizeof header);
    const std::size_t name = at + sizeof header;
    const std::size_t descriptor = name + (std::size_t{header.n_namesz} + 3) / 4 * 4;
    const std::size_t next = descriptor + (std::size_t{header.n_descsz} + 3) / 4 * 4;
    if (next > bytes) break;
    if (header.n_type == engine::inspection_type &&
        header.n_namesz == sizeof engine::inspection_name &&
        std::memcmp(notes + name, engine::inspection_name, header.n_namesz) == 0)
      return address + descriptor;
    at = next;
  }
  return 0;
}

// The same for the file that begins there.
std::uintptr_t find_note(const Process& process, const Mapping& file) {
  ElfW(Ehdr) header;
  if (!process.read(file.range.begin, header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(ElfW(Phdr)))
    return 0;
  constexpr std::size_t max_segments = 64;
  ElfW(Phdr) segments[max_segments];
  const std::size_t count = std::min<std::size_t>(header.e_phnum, max_segments);
  if (!process.read(file.range.begin + header.e_phoff, segments, count * sizeof segments[0]))
    return 0;
  const auto* const first = std::find_if(segments, segments + count, [](const ElfW(Phdr) & each) {
    return each.p_type == PT_LOAD && each.p_offset == 0;
  });
  const std::uintptr_t base = first != segments + count ? file.range.begin - first->p_vaddr : 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (segments[i].p_type != PT_NOTE) continue;
    const std::uintptr_t found =
        find_in_notes(process, base + segments[i].p_vaddr, segments[i].p_memsz);
    if (found != 0) return found;
  }
  return 0;
}

bool is_plausible(const PageMap& map) {
  return map.page_count.load(std::memory_order_relaxed) <= engine::AddressRange::max_pages &&
         map.heap_count.load(std::memory_order_relaxed) <= engine::AddressRange::max_heaps &&
         map.pages != nullptr && map.spans != nullptr && map.heaps != nullptr;
}

}  // namespace

std::uintptr_t EngineImage::place(std::size_t field) const {
  std::int64_t behind = 0;
  std::memcpy(&behind, reinterpret_cast<const char*>(&inspection_) + field, sizeof behind);
  return note_ + field + static_cast<std::uintptr_t>(behind);
}

EngineStatus EngineImage::look_at(const Process& process, std::uintptr_t note) {
  std::uint64_t layout = 0;
  note_ = note;
  if (!process.read(note, inspection_) ||
      !process.read(place(offsetof(Inspection, layout_number)), layout))
    return EngineStatus::unreadable;
  if (layout != engine::layout_number) return EngineStatus::other_version;
  if (!map_.read(process, place(offsetof(Inspection, page_map)))) return EngineStatus::unreadable;
  if (page_count() == 0) return EngineStatus::unused;
  return is_plausible(map()) ? EngineStatus::engine : EngineStatus::unreadable;
}

EngineStatus EngineImage::find(const Process& process) {
  EngineStatus found = EngineStatus::none;
  for (const Mapping& mapping : process) {
    if (!mapping.begins_file) continue;
    const std::uintptr_t note = find_note(process, mapping);
    if (note == 0) continue;
    found = look_at(process, note);
    if (found == EngineStatus::engine) break;  // another copy, if any, is unused
  }
  return found;
}

EngineImage::Tables EngineImage::tables() const {
  const auto range = [](const void* begin, std::size_t bytes) {
    return Range{address_in(begin), address_in(begin) + bytes};
  };
  return {{range(map().pages, page_count() * sizeof(engine::MapPage)),
           range(map().spans, page_count() * sizeof(engine::Span)),
           range(map().uses, page_count() * sizeof(engine::SlabUse)),
           range(map().more_free_bits, page_count() * sizeof(engine::MoreFreeBits)),
           range(map().remote_frees, page_count() * sizeof(engine::RemoteFrees)),
           range(map().heaps, (heap_count() + std::size_t{1}) * sizeof(engine::ThreadHeap))}};
}

EngineImage::Ranges EngineImage::ranges() const {
  const Tables tables = this->tables();
  Ranges all;
  std::ranges::copy(tables, std::begin(all.ranges));
  std::end(all.ranges)[-1] = {map().base, map().base + committed_pages() * engine::page_bytes};
  std::sort(std::begin(all.ranges), std::end(all.ranges),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  return all;
}

bool EngineImage::has(const Range& range) const {
  const Ranges all = ranges();
  return std::any_of(all.begin(), all.end(),
                     [&](const Range& each) { return range.overlaps(each); });
}

}  // namespace ts
