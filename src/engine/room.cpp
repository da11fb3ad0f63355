#include "engine/room.h"

#include <algorithm>

#include "os/os.h"

namespace ts::engine {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

// The range is extended by at least so much, if the system grants it, and by at least an eighth.
constexpr std::size_t step_granules = (std::size_t{16} << 20) / granule_bytes;
constexpr std::size_t small_step_granules = huge_page_bytes / granule_bytes;
constexpr std::size_t heap_step_bytes = std::size_t{64} << 10;

// Where the whole range has to be reserved, it is the largest of these that the system grants.
constexpr std::size_t max_reserved_granules = std::size_t{1} << 26;  // 1 TiB
constexpr std::size_t min_reserved_granules = std::size_t{1} << 9;   // 8 MiB

constexpr std::size_t aligned(std::size_t bytes) noexcept {
  return align_up(bytes, huge_page_bytes);
}

constexpr std::size_t range_bytes(std::size_t granules, std::size_t heaps) noexcept {
  return aligned(granules * sizeof(Entry)) + aligned(granules * sizeof(Span)) +
         aligned(granules * sizeof(RemoteFrees)) + aligned(heaps * sizeof(ThreadHeap)) +
         granules * granule_bytes;
}

}  // namespace

void Room::lay_out(std::uintptr_t begin, std::size_t capacity, std::size_t heap_capacity) noexcept {
  const auto part = [&](std::size_t bytes) {
    const Part at{begin, 0};
    begin += aligned(bytes);
    return at;
  };
  map_ = part(capacity * sizeof(Entry));
  spans_ = part(capacity * sizeof(Span));
  remote_frees_ = part(capacity * sizeof(RemoteFrees));
  heaps_ = part(heap_capacity * sizeof(ThreadHeap));
  memory_ = part(capacity * granule_bytes);
  layout.map = reinterpret_cast<std::atomic<Entry>*>(map_.begin);
  layout.spans = reinterpret_cast<Span*>(spans_.begin);
  layout.remote_frees = reinterpret_cast<RemoteFrees*>(remote_frees_.begin);
  layout.heaps = reinterpret_cast<ThreadHeap*>(heaps_.begin);
  layout.base = memory_.begin;
  lowest_block.store(memory_.begin, std::memory_order_relaxed);
  capacity_ = capacity;
  heap_capacity_ = heap_capacity;
}

// Gives back what is the process's of a range in which nothing is in use yet.
void Room::forget() noexcept {
  for (Part* part : {&map_, &spans_, &remote_frees_, &heaps_, &memory_}) {
    if (part->bytes != 0) os::unmap(reinterpret_cast<void*>(part->begin), part->bytes);
    *part = {};
  }
  capacity_ = 0;
}

bool Room::take_table(Part& part, std::size_t bytes) const noexcept {
  bytes = align_up(bytes, os::page_bytes());
  if (bytes <= part.bytes) return true;
  auto* const begin = reinterpret_cast<void*>(part.begin + part.bytes);
  const std::size_t more = bytes - part.bytes;
  if (!(is_reserved_ ? os::commit(begin, more) : os::map_at(begin, more))) return false;
  part.bytes = bytes;
  return true;
}

bool Room::take_addresses(std::size_t bytes) noexcept {
  if (bytes <= memory_.bytes) return true;
  auto* const begin = reinterpret_cast<void*>(memory_.begin + memory_.bytes);
  if (!is_reserved_ && !os::reserve_at(begin, bytes - memory_.bytes)) return false;
  memory_.bytes = bytes;
  return true;
}

void Room::shrink_table(Part& part, std::size_t bytes) const noexcept {
  bytes = align_up(bytes, os::page_bytes());
  if (bytes >= part.bytes) return;
  auto* const begin = reinterpret_cast<void*>(part.begin + bytes);
  const std::size_t less = part.bytes - bytes;
  // What cannot be given back is there the next time.
  if (is_reserved_ ? os::decommit(begin, less) : os::unmap(begin, less)) part.bytes = bytes;
}

void Room::shrink(std::size_t granules) noexcept {
  shrink_table(map_, granules * sizeof(Entry));
  shrink_table(spans_, granules * sizeof(Span));
  shrink_table(remote_frees_, granules * sizeof(RemoteFrees));
  const std::size_t bytes = granules * granule_bytes;
  auto* const begin = reinterpret_cast<void*>(memory_.begin + bytes);
  if (bytes < memory_.bytes && (is_reserved_ || os::unmap(begin, memory_.bytes - bytes)))
    memory_.bytes = bytes;
  granules_ = granules;
}

// All parts or none: a request that fails must not use up what a limit leaves for others.
bool Room::take(std::size_t granules) noexcept {
  if (!take_table(map_, granules * sizeof(Entry)) || !take_table(spans_, granules * sizeof(Span)) ||
      !take_table(remote_frees_, granules * sizeof(RemoteFrees)) ||
      !take_addresses(granules * granule_bytes)) {
    shrink(granules_);
    return false;
  }
  granules_ = granules;
  return true;
}

// By as much as is reasonable, or half of that, and so on, down to what is needed.
bool Room::extend_by_steps(std::size_t granules) noexcept {
  if (granules > capacity_) return false;
  const std::size_t left = capacity_ - granules_;
  const std::size_t needed = granules - granules_;
  std::size_t step = std::max({needed, granules_ / 8, step_granules});
  for (;; step /= 2) {
    step = std::min(align_up(std::max(step, needed), small_step_granules), left);
    if (take(granules_ + step)) return true;
    if (step <= small_step_granules || step / 2 < needed) break;
  }
  return take(granules);
}

bool Room::place_freely(std::size_t granules) noexcept {
  constexpr std::size_t bytes = range_bytes(max_granules, max_heaps);
  for (unsigned attempt = 0;; ++attempt) {
    void* const begin = os::lonely_address(attempt, bytes);
    if (begin == nullptr) return false;
    lay_out(address_of(begin), max_granules, max_heaps);
    if (extend_by_steps(granules)) return true;
    forget();
  }
}

bool Room::place_reserved(std::size_t granules) noexcept {
  for (std::size_t capacity = max_reserved_granules; capacity >= min_reserved_granules;
       capacity /= 2) {
    const std::size_t heaps = std::min(max_heaps, capacity / 4);
    const std::size_t bytes = range_bytes(capacity, heaps) + huge_page_bytes;
    void* const begin = os::reserve(bytes);
    if (begin == nullptr) continue;
    is_reserved_ = true;
    lay_out(align_up(address_of(begin), huge_page_bytes), capacity, heaps);
    if (extend_by_steps(granules)) return true;
    is_reserved_ = false;
    forget();
    os::unmap(begin, bytes);
    return false;
  }
  return false;
}

bool Room::place(std::size_t granules) noexcept {
  return place_freely(granules) || place_reserved(granules);
}

bool Room::extend(std::size_t granules) noexcept {
  if (granules <= granules_) return true;
  return is_placed() ? extend_by_steps(granules) : place(granules);
}

bool Room::add_heap(std::uint32_t number) noexcept {
  if (!is_placed() && !place(1)) return false;
  if (number >= heap_capacity_) return false;
  const std::size_t bytes = (std::size_t{number} + 1) * sizeof(ThreadHeap);
  return take_table(heaps_, align_up(bytes, heap_step_bytes)) || take_table(heaps_, bytes);
}

}  // namespace ts::engine
