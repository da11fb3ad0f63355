#include "core/address_range.h"

#include <algorithm>

#include "core/page_map.h"
#include "os/os.h"

namespace ts::engine {
namespace {

// The range grows by its own size, up to the larger step; a large range grows by an eighth. If the
// system refuses, smaller steps are tried, halved down to the small one. Small programs thus stay
// within a limit on locked memory (often 8 MiB), which counts address space after mlockall(2).
constexpr std::size_t step_pages = (std::size_t{16} << 20) / page_bytes;
constexpr std::size_t small_step_pages = pages_per_huge_page;
constexpr std::size_t heap_step_bytes = std::size_t{128} << 10;

// If the whole range has to be reserved, these are tried from the largest down.
constexpr std::size_t max_reserved_pages = std::size_t{1} << 26;  // 1 TiB
constexpr std::size_t min_reserved_pages = std::size_t{1} << 9;   // 8 MiB

// A slab's descriptor and its free bits are written one after the other. If their addresses
// differed in the high bits only, as parts of this range otherwise would, processors would mistake
// one cache line for the other (docs/adr/0006).
constexpr std::size_t bits_skew = 4096 + 33 * sizeof(SlabUse);

constexpr std::size_t aligned(std::size_t bytes) noexcept {
  return align_up(bytes, huge_page_bytes);
}

constexpr std::size_t range_bytes(std::size_t pages, std::size_t heaps) noexcept {
  return aligned(pages * sizeof(MapPage)) + aligned(pages * sizeof(Span)) +
         aligned(pages * sizeof(RemoteFrees)) + aligned(pages * sizeof(SlabUse) + bits_skew) +
         aligned(pages * sizeof(MoreFreeBits)) + aligned(heaps * sizeof(ThreadHeap)) +
         pages * page_bytes;
}

}  // namespace

void AddressRange::lay_out(std::uintptr_t begin, std::size_t capacity,
                           std::size_t heap_capacity) noexcept {
  const auto part = [&](std::size_t bytes) {
    const Part at{begin, 0};
    begin += aligned(bytes);
    return at;
  };
  map_ = part(capacity * sizeof(MapPage));
  spans_ = part(capacity * sizeof(Span));
  uses_ = part(capacity * sizeof(SlabUse) + bits_skew);
  more_free_bits_ = part(capacity * sizeof(MoreFreeBits));
  remote_frees_ = part(capacity * sizeof(RemoteFrees));
  heaps_ = part(heap_capacity * sizeof(ThreadHeap));
  memory_ = part(capacity * page_bytes);
  page_map.pages = reinterpret_cast<MapPage*>(map_.begin);
  page_map.spans = reinterpret_cast<Span*>(spans_.begin);
  page_map.uses = reinterpret_cast<SlabUse*>(uses_.begin + bits_skew);
  page_map.use_distance = static_cast<std::ptrdiff_t>(uses_.begin + bits_skew - spans_.begin);
  page_map.more_free_bits = reinterpret_cast<MoreFreeBits*>(more_free_bits_.begin);
  page_map.remote_frees = reinterpret_cast<RemoteFrees*>(remote_frees_.begin);
  page_map.heaps = reinterpret_cast<ThreadHeap*>(heaps_.begin);
  page_map.base = memory_.begin;
  page_map.pages_per_os_page = std::max(os::page_bytes() / page_bytes, std::size_t{1});
  page_map.lowest_block.store(memory_.begin, std::memory_order_relaxed);
  capacity_ = capacity;
  heap_capacity_ = heap_capacity;
}

// Unmaps all parts of a range in which nothing is in use yet, except a reserved one, which the
// caller unmaps as a whole.
void AddressRange::forget() noexcept {
  for (Part* part : {&map_, &spans_, &uses_, &more_free_bits_, &remote_frees_, &heaps_, &memory_}) {
    if (part->bytes != 0 && !is_reserved_)
      os::unmap_unused(reinterpret_cast<void*>(part->begin), part->bytes);
    *part = {};
  }
  capacity_ = 0;
}

bool AddressRange::take_table(Part& part, std::size_t bytes) const noexcept {
  bytes = align_up(bytes, os::page_bytes());
  if (bytes <= part.bytes) return true;
  auto* const begin = reinterpret_cast<void*>(part.begin + part.bytes);
  const std::size_t more = bytes - part.bytes;
  if (!(is_reserved_ ? os::commit(begin, more) : os::map_at(begin, more))) return false;
  part.bytes = bytes;
  return true;
}

bool AddressRange::take_addresses(std::size_t bytes) noexcept {
  if (bytes <= memory_.bytes) return true;
  auto* const begin = reinterpret_cast<void*>(memory_.begin + memory_.bytes);
  if (!is_reserved_ && !os::reserve_at(begin, bytes - memory_.bytes)) return false;
  memory_.bytes = bytes;
  return true;
}

void AddressRange::shrink_table(Part& part, std::size_t bytes) const noexcept {
  bytes = align_up(bytes, os::page_bytes());
  if (bytes >= part.bytes) return;
  auto* const begin = reinterpret_cast<void*>(part.begin + bytes);
  const std::size_t less = part.bytes - bytes;
  // If the system refuses, the part is kept and used again next time.
  if (is_reserved_ ? os::decommit(begin, less) : os::unmap_unused(begin, less)) part.bytes = bytes;
}

void AddressRange::shrink(std::size_t pages) noexcept {
  shrink_table(map_, pages * sizeof(MapPage));
  shrink_table(spans_, pages * sizeof(Span));
  shrink_table(uses_, pages * sizeof(SlabUse) + bits_skew);
  shrink_table(more_free_bits_, pages * sizeof(MoreFreeBits));
  shrink_table(remote_frees_, pages * sizeof(RemoteFrees));
  const std::size_t bytes = pages * page_bytes;
  auto* const begin = reinterpret_cast<void*>(memory_.begin + bytes);
  if (bytes < memory_.bytes && (is_reserved_ || os::unmap_unused(begin, memory_.bytes - bytes)))
    memory_.bytes = bytes;
  pages_ = pages;
}

// All parts or none: a failing request must not use up the rest of a limit.
bool AddressRange::take(std::size_t pages) noexcept {
  if (!take_table(map_, pages * sizeof(MapPage)) || !take_table(spans_, pages * sizeof(Span)) ||
      !take_table(uses_, pages * sizeof(SlabUse) + bits_skew) ||
      !take_table(more_free_bits_, pages * sizeof(MoreFreeBits)) ||
      !take_table(remote_frees_, pages * sizeof(RemoteFrees)) ||
      !take_addresses(pages * page_bytes)) {
    shrink(pages_);
    return false;
  }
  pages_ = pages;
  return true;
}

// Tries a full step, then halves, down to the pages that are needed.
bool AddressRange::extend_by_steps(std::size_t pages) noexcept {
  pages = align_up(pages, page_map.pages_per_os_page);
  if (pages > capacity_) return false;
  const std::size_t left = capacity_ - pages_;
  const std::size_t needed = pages - pages_;
  std::size_t step = std::max({needed, pages_ / 8, std::min(pages_, step_pages)});
  for (;; step /= 2) {
    step = std::min(align_up(std::max(step, needed), small_step_pages), left);
    if (take(pages_ + step)) return true;
    if (step <= small_step_pages || step / 2 < needed) break;
  }
  return take(pages);
}

bool AddressRange::place_freely(std::size_t pages) noexcept {
  constexpr std::size_t bytes = range_bytes(max_pages, max_heaps);
  for (unsigned attempt = 0;; ++attempt) {
    void* const begin = os::lonely_address(attempt, bytes);
    if (begin == nullptr) return false;
    lay_out(address_of(begin), max_pages, max_heaps);
    if (extend_by_steps(pages)) return true;
    forget();
  }
}

bool AddressRange::place_reserved(std::size_t pages) noexcept {
  for (std::size_t capacity = max_reserved_pages; capacity >= min_reserved_pages; capacity /= 2) {
    const std::size_t heaps = std::min(max_heaps, capacity / 4);
    const std::size_t bytes = range_bytes(capacity, heaps) + huge_page_bytes;
    void* const begin = os::reserve(bytes);
    if (begin == nullptr) continue;
    is_reserved_ = true;
    lay_out(align_up(address_of(begin), huge_page_bytes), capacity, heaps);
    if (extend_by_steps(pages)) return true;
    forget();
    is_reserved_ = false;
    os::unmap_unused(begin, bytes);
    return false;
  }
  return false;
}

// Also makes room for the first heaps: once large blocks have used up all addresses, a small
// request still needs a heap.
bool AddressRange::place(std::size_t pages) noexcept {
  if (!place_freely(pages) && !place_reserved(pages)) return false;
  add_heap(1);
  return true;
}

bool AddressRange::extend(std::size_t pages) noexcept {
  if (pages <= pages_) return true;
  return is_placed() ? extend_by_steps(pages) : place(pages);
}

void AddressRange::forget_tables(std::size_t first_page, std::size_t pages) noexcept {
  const auto forget = [=](auto* table) {
    os::discard_whole_pages(table + first_page, table + first_page + pages);
  };
  forget(page_map.pages);
  forget(page_map.spans);
  forget(page_map.uses);
  forget(page_map.more_free_bits);
  forget(page_map.remote_frees);
}

bool AddressRange::add_heap(std::uint32_t number) noexcept {
  if (!is_placed() && !place(1)) return false;
  if (number >= heap_capacity_) return false;
  const std::size_t bytes = (std::size_t{number} + 1) * sizeof(ThreadHeap);
  return take_table(heaps_, align_up(bytes, heap_step_bytes)) || take_table(heaps_, bytes);
}

}  // namespace ts::engine
