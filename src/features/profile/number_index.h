// A hash index of numbered items, in a mapping of its own. It does not know the items: the caller
// compares and hashes them.
#pragma once

#include <cstdint>

#include "os/os.h"

namespace ts::engine {

// Open addressing (linear probing): slots hold 1 + an item's number; 0 is empty. The number of
// slots is a power of two.
struct NumberIndex {
  std::uint32_t* slots = nullptr;
  std::uint32_t slot_count = 0;
  std::uint32_t used = 0;
};

// The number of the item with this hash for which `is(number)`, or no_number.
inline constexpr std::uint32_t no_number = ~std::uint32_t{0};

template <class Is>
std::uint32_t find_number(const NumberIndex& index, std::uint64_t hash, Is is) noexcept {
  if (index.slot_count == 0) return no_number;
  const std::uint32_t mask = index.slot_count - 1;
  for (auto slot = static_cast<std::uint32_t>(hash) & mask;; slot = (slot + 1) & mask) {
    const std::uint32_t entry = index.slots[slot];
    if (entry == 0) return no_number;
    if (is(entry - 1)) return entry - 1;
  }
}

inline void put_number(NumberIndex& index, std::uint64_t hash, std::uint32_t number) noexcept {
  const std::uint32_t mask = index.slot_count - 1;
  auto slot = static_cast<std::uint32_t>(hash) & mask;
  while (index.slots[slot] != 0) slot = (slot + 1) & mask;
  index.slots[slot] = number + 1;
}

// Makes room for one more item: at most half of the slots are used. False if there is no memory.
template <class HashOf>
bool reserve_number(NumberIndex& index, HashOf hash_of) noexcept {
  if (2 * (index.used + 1) <= index.slot_count) return true;
  const auto first_count = static_cast<std::uint32_t>(os::page_bytes() / sizeof(std::uint32_t));
  NumberIndex larger{nullptr, index.slot_count != 0 ? 2 * index.slot_count : first_count,
                     index.used};
  larger.slots = static_cast<std::uint32_t*>(os::map(larger.slot_count * sizeof(std::uint32_t)));
  if (larger.slots == nullptr) return false;
  for (std::uint32_t slot = 0; slot < index.slot_count; ++slot) {
    if (const std::uint32_t entry = index.slots[slot]; entry != 0)
      put_number(larger, hash_of(entry - 1), entry - 1);
  }
  if (index.slots != nullptr)
    os::unmap_unused(index.slots, index.slot_count * sizeof(std::uint32_t));
  index = larger;
  return true;
}

// Removes an item, and moves up those after it (Knuth, The Art of Computer Programming 3, 6.4, R).
template <class HashOf>
void remove_number(NumberIndex& index, std::uint64_t hash, std::uint32_t number,
                   HashOf hash_of) noexcept {
  const std::uint32_t mask = index.slot_count - 1;
  auto hole = static_cast<std::uint32_t>(hash) & mask;
  while (index.slots[hole] != number + 1) hole = (hole + 1) & mask;
  for (std::uint32_t slot = (hole + 1) & mask; index.slots[slot] != 0; slot = (slot + 1) & mask) {
    const auto home = static_cast<std::uint32_t>(hash_of(index.slots[slot] - 1)) & mask;
    if (((slot - home) & mask) < ((slot - hole) & mask)) continue;
    index.slots[hole] = index.slots[slot];
    hole = slot;
  }
  index.slots[hole] = 0;
  --index.used;
}

}  // namespace ts::engine
