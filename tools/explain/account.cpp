// Finds the engine's page map by its note and walks through spans and heaps; see account.h.
#include "explain/account.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine/address_range.h"

namespace ts {
namespace {

using engine::Inspection;
using engine::MapPage;
using engine::PageMap;
using engine::PageMapEntry;
using engine::RemoteFrees;
using engine::Span;
using engine::SpanState;
using engine::ThreadHeap;

std::uintptr_t address_in(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

// Room for objects of the process, which have no life here.
template <class T>
class Copy {
 public:
  explicit Copy(std::size_t count = 1)
      : objects_{static_cast<T*>(std::aligned_alloc(alignof(T) < 64 ? 64 : alignof(T),
                                                    (count * sizeof(T) + 63) / 64 * 64))} {
    if (objects_ == nullptr) std::abort();
  }
  ~Copy() { std::free(objects_); }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  bool read(const Process& process, std::uintptr_t address, std::size_t count = 1) const {
    return process.read(address, objects_, count * sizeof(T));
  }
  const T& operator[](std::size_t i) const { return objects_[i]; }
  const T* operator->() const { return objects_; }

 private:
  T* objects_;
};

// ---- the note ----

// The address of the note's descriptor in a segment of notes; 0 if there is none.
std::uintptr_t find_in_notes(const Process& process, std::uintptr_t address, std::size_t bytes) {
  constexpr std::size_t most_bytes = 4096;
  alignas(8) char notes[most_bytes];
  bytes = std::min(bytes, most_bytes);
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
        std::memcmp(notes + name, engine::inspection_name, header.n_namesz) == 0 &&
        header.n_descsz == sizeof(Inspection))
      return address + descriptor;
    at = next;
  }
  return 0;
}

// The same in the file that begins there.
std::uintptr_t find_note(const Process& process, const Mapping& file) {
  ElfW(Ehdr) header;
  if (!process.read(file.range.begin, header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(ElfW(Phdr)))
    return 0;
  std::uintptr_t base = 0;
  for (unsigned pass = 0; pass < 2; ++pass) {
    for (unsigned i = 0; i < header.e_phnum; ++i) {
      ElfW(Phdr) segment;
      if (!process.read(file.range.begin + header.e_phoff + i * sizeof segment, segment)) return 0;
      if (pass == 0 && segment.p_type == PT_LOAD && segment.p_offset == 0)
        base = file.range.begin - segment.p_vaddr;
      if (pass == 0 || segment.p_type != PT_NOTE) continue;
      const std::uintptr_t found = find_in_notes(process, base + segment.p_vaddr, segment.p_memsz);
      if (found != 0) return found;
    }
  }
  return 0;
}

// ---- the walk ----

class Walk {
 public:
  Walk(Process& process, const PageMap& map, Account& account)
      : process_{process},
        map_{map},
        account_{account},
        page_count_{map.page_count.load(std::memory_order_relaxed)},
        heap_count_{map.heap_count.load(std::memory_order_relaxed)},
        has_pending_{static_cast<bool*>(std::calloc(heap_count_ + 1, 1))},
        is_ended_{static_cast<bool*>(std::calloc(heap_count_ + 1, 1))} {
    if (has_pending_ == nullptr || is_ended_ == nullptr) std::abort();
  }
  ~Walk() {
    std::free(has_pending_);
    std::free(is_ended_);
  }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  bool run() {
    if (!read_heaps() || !read_spans()) return false;
    // Slabs count the blocks of bins and batches as used.
    for (std::size_t* const aside : {&account_.bins, &ended_bins_}) {
      *aside = std::min(*aside, account_.small);
      account_.small -= *aside;
      account_.live -= std::min(*aside, account_.live);
    }
    account_.ended += ended_bins_;
    for (const Range& table : tables()) account_.tables += process_.resident_bytes(table);
    return true;
  }

  bool has(const Range& range) const {
    for (const Range& table : tables()) {
      if (range.overlaps(table)) return true;
    }
    return range.overlaps({map_.base, map_.base + page_count_ * engine::page_bytes});
  }

 private:
  struct Tables {
    Range ranges[4];
    const Range* begin() const { return ranges; }
    const Range* end() const { return ranges + 4; }
  };
  Tables tables() const {
    const auto range = [](const void* begin, std::size_t bytes) {
      return Range{address_in(begin), address_in(begin) + bytes};
    };
    return {{range(map_.pages, page_count_ * sizeof(MapPage)),
             range(map_.spans, page_count_ * sizeof(Span)),
             range(map_.remote_frees, page_count_ * sizeof(RemoteFrees)),
             range(map_.heaps, (heap_count_ + 1) * sizeof(ThreadHeap))}};
  }

  std::size_t batch_bytes(const engine::RemoteBatch& batch) const {
    const Span* const slab = batch.slab;
    if (batch.count == 0 || slab == nullptr) return 0;
    const std::size_t page = (address_in(slab) - address_in(map_.spans)) / sizeof(Span);
    std::uint32_t entry = 0;
    if (page >= page_count_ || !process_.read(address_in(map_.pages + page), entry)) return 0;
    const unsigned size_class = (entry & engine::class_mask) >> engine::class_shift;
    return size_class < engine::class_count
               ? batch.count * std::size_t{engine::size_classes[size_class].block_bytes}
               : 0;
  }

  std::size_t bytes_aside(const ThreadHeap& heap) const {
    std::size_t bytes = 0;
    for (unsigned c = 1; c < engine::class_count; ++c) {
      const std::int32_t blocks = heap.capacities[c] - heap.bins[c].capacity_left;
      if (blocks > 0 && static_cast<std::uint32_t>(blocks) <= engine::max_in_bin)
        bytes +=
            static_cast<std::uint32_t>(blocks) * std::size_t{engine::size_classes[c].block_bytes};
    }
    for (const engine::RemoteBatch& batch : heap.batches) bytes += batch_bytes(batch);
    return bytes;
  }

  bool read_heaps() {
    const Copy<ThreadHeap> heap;
    account_.heaps += heap_count_;
    for (std::uint32_t number = 1; number <= heap_count_; ++number) {
      if (!heap.read(process_, address_in(map_.heaps + number))) return false;
      is_ended_[number] = is_abandoned(heap[0]);
      has_pending_[number] = heap->ready.load(std::memory_order_relaxed) != nullptr;
      account_.ended_heaps += is_ended_[number] ? 1 : 0;
      (is_ended_[number] ? ended_bins_ : account_.bins) += bytes_aside(heap[0]);
    }
    return true;
  }

  bool read_spans() {
    constexpr std::size_t most = 256;
    const Copy<Span> spans{most};
    const Copy<MapPage> pages{most};
    for (std::size_t first = 0; first < page_count_;) {
      const std::size_t count = std::min(most, page_count_ - first);
      if (!spans.read(process_, address_in(map_.spans + first), count) ||
          !pages.read(process_, address_in(map_.pages + first), count))
        return false;
      std::size_t i = 0;
      while (i < count) {
        const std::size_t length = spans[i].pages;
        const bool is_clear = length != 0 && length <= page_count_ - first - i;
        if (is_clear) {
          add(spans[i], pages[i].entry.load(std::memory_order_relaxed), first + i);
        } else {
          ++account_.unclear;
        }
        i += is_clear ? length : 1;
      }
      first += i;
    }
    return true;
  }

  std::size_t pending_bytes(PageMapEntry entry, std::size_t page, std::size_t block_bytes) const {
    const std::uint32_t heap = engine::heap_number(entry);
    if (heap > heap_count_ || !has_pending_[heap]) return 0;
    std::uint32_t pending = 0;
    process_.read(address_in(map_.remote_frees + page) + offsetof(RemoteFrees, pending), pending);
    return pending * block_bytes;
  }

  void add_slab(const Span& span, PageMapEntry entry, std::size_t page, std::size_t resident) {
    const std::size_t block_bytes = engine::size_classes[span.size_class].block_bytes;
    const std::size_t used = span.used.load(std::memory_order_relaxed) * block_bytes;
    const std::size_t used_resident = std::min(used, resident);
    const std::size_t pending = pending_bytes(entry, page, block_bytes);
    const std::size_t waiting = std::min(pending, used_resident);
    const std::uint32_t heap = engine::heap_number(entry);
    ++account_.slabs;
    account_.live += used - std::min(pending, used);
    account_.small += used_resident - waiting;
    account_.waiting += waiting;
    (heap <= heap_count_ && is_ended_[heap] ? account_.ended : account_.in_slabs) +=
        resident - used_resident;
    account_.classes[span.size_class].slab_bytes += resident;
    account_.classes[span.size_class].used_bytes += used_resident;
  }

  void add(const Span& span, PageMapEntry entry, std::size_t page) {
    const std::uintptr_t begin = map_.base + page * engine::page_bytes;
    const std::size_t bytes = std::size_t{span.pages} * engine::page_bytes;
    const std::size_t resident = process_.resident_bytes({begin, begin + bytes});
    if (span.state == SpanState::slab && span.size_class < engine::class_count) {
      add_slab(span, entry, page, resident);
    } else if (span.state == SpanState::large && entry != 0) {
      ++account_.large_blocks;
      account_.live += bytes;
      account_.large += resident;
    } else {
      account_.pages += resident;
    }
  }

  Process& process_;
  const PageMap& map_;
  Account& account_;
  std::size_t page_count_;
  std::uint32_t heap_count_;
  std::size_t ended_bins_ = 0;
  bool* has_pending_;  // by heap: whether a slab of it has pending frees
  bool* is_ended_;     // by heap: whether its thread has ended
};

bool is_plausible(const PageMap& map) {
  return map.page_count.load(std::memory_order_relaxed) <= engine::AddressRange::max_pages &&
         map.heap_count.load(std::memory_order_relaxed) <= engine::AddressRange::max_heaps &&
         map.pages != nullptr && map.spans != nullptr && map.heaps != nullptr;
}

void add_rest(const Process& process, const Walk& walk, Account& account) {
  std::size_t shared = 0;
  for (const Mapping& mapping : process) {
    account.resident += mapping.resident_bytes;
    (walk.has(mapping.range) ? shared
     : mapping.is_file       ? account.files
     : mapping.is_stack      ? account.stacks
                             : account.others) += mapping.resident_bytes;
  }
  // The kernel joins mappings of the engine with others behind them.
  account.others += shared - std::min(shared, account.engine());
}

Found take_account_at(Process& process, std::uintptr_t note, Account& account) {
  Inspection inspection{};
  std::uint64_t layout = 0;
  const std::uintptr_t to_layout = note + offsetof(Inspection, layout_number);
  const std::uintptr_t to_map = note + offsetof(Inspection, page_map);
  if (!process.read(note, inspection) ||
      !process.read(to_layout + static_cast<std::uintptr_t>(inspection.layout_number), layout))
    return Found::unreadable;
  if (layout != engine::layout_number) return Found::other_version;
  const Copy<PageMap> map;
  if (!map.read(process, to_map + static_cast<std::uintptr_t>(inspection.page_map)))
    return Found::unreadable;
  if (map->page_count.load(std::memory_order_relaxed) == 0) return Found::unused;
  if (!is_plausible(map[0])) return Found::unreadable;
  Walk walk{process, map[0], account};
  if (!walk.run()) return Found::unreadable;
  add_rest(process, walk, account);
  return Found::engine;
}

}  // namespace

Found take_account(Process& process, Account& account) {
  Found found = Found::none;
  for (const Mapping& mapping : process) {
    if (!mapping.begins_file) continue;
    const std::uintptr_t note = find_note(process, mapping);
    if (note == 0) continue;
    account = {};
    found = take_account_at(process, note, account);
    if (found == Found::engine) break;  // another copy, if any, serves nothing
  }
  return found;
}

}  // namespace ts
