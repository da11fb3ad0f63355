// A slab: pages of a region, cut into slots of one size, each a block and its canary. Slots hold
// blocks only; this descriptor is in the region's table.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/fault.h"
#include "secure/quarantine.h"
#include "secure/random.h"
#include "secure/size_classes.h"
#include "secure/tail.h"

namespace ts::secure {

enum class SlabState : std::uint8_t {
  given_back,  // inaccessible, has no memory
  partial,     // some slots free, some not
  full,        // no free slot
  empty,       // only free slots
  leaving,     // was empty; one thread is returning its pages, without the lock
};
inline constexpr unsigned slab_states = 5;

// Invariants whenever the class heap is unlocked:
//   slot     in use, waiting, or free: `used` and `waiting` have no bit in common, and none beyond
//            the last slot
//   counts   used_slots and waiting_slots are the numbers of those bits
//   state    given_back, full, empty and leaving as above; otherwise partial
//   canary   begins as all canaries do (tail.h)
//   leaving  a slot that is leaving is waiting, and not in the quarantine
//   memory   until the program overwrites it: each block in use has its tail (tail.h), and every
//            other slot that is not leaving is zero
//
// All that malloc and free look at comes first: with up to 128 slots, one cache line.
struct alignas(64) Slab {
  struct Bits {
    std::uint64_t used;
    std::uint64_t waiting;
  };
  static constexpr unsigned words = max_slab_slots / 64;

  std::uint64_t canary;  // drawn whenever the slab is given memory
  std::uint32_t next;    // in the list of its state: number plus one; 0: none
  std::uint32_t before;
  std::uint16_t used_slots;
  std::uint16_t waiting_slots;
  SlabState state;
  bool is_bridged;        // the guard page before it is mapped too (mappings.h)
  bool is_discarded;      // empty, pages discarded but accessible; or leaving, and to end so
  std::uint64_t leaving;  // slots that a thread clears without the lock; the first 64 slots only
  Bits bits[words];
  std::uint32_t asked[max_long_slots];  // requested size of each long slot in use

  bool is_used(unsigned slot) const noexcept {
    return (bits[slot / 64].used >> slot % 64 & 1) != 0;
  }
  bool is_waiting(unsigned slot) const noexcept {
    return (bits[slot / 64].waiting >> slot % 64 & 1) != 0;
  }
};

// Whether the holder of the lock may touch its memory.
inline bool is_accessible(const Slab& slab) noexcept {
  return slab.state != SlabState::given_back && slab.state != SlabState::leaving;
}

// Checks all of them except `memory`.
Fault find_slab_fault(const Slab& slab, const SizeClass& c) noexcept;
// Checks slots, counts and canary, which also hold while the slab changes its state.
Fault find_slot_fault(const Slab& slab, const SizeClass& c) noexcept;

constexpr std::uint64_t bit_of(unsigned slot) noexcept { return std::uint64_t{1} << slot % 64; }

inline constexpr unsigned max_leaving_slots = 64;
inline bool is_leaving(const Slab& slab, unsigned slot) noexcept {
  return slot < max_leaving_slots && (slab.leaving >> slot & 1) != 0;
}

// The number of bits set in each field of 2 and 4 bits of a word, and in each byte and all lower
// ones. (Warren, Hacker's Delight, 5-1. Compilers call a function for popcount where not every CPU
// has the instruction.)
struct BitCounts {
  std::uint64_t in_pairs;
  std::uint64_t in_nibbles;
  std::uint64_t up_to_bytes;

  std::uint32_t all() const noexcept { return static_cast<std::uint32_t>(up_to_bytes >> 56); }
};
inline constexpr std::uint64_t ones = 0x0101'0101'0101'0101;
constexpr BitCounts count_bits(std::uint64_t bits) noexcept {
  const std::uint64_t pairs = bits - (bits >> 1 & 0x5555'5555'5555'5555);
  const std::uint64_t nibbles =
      (pairs & 0x3333'3333'3333'3333) + (pairs >> 2 & 0x3333'3333'3333'3333);
  return {pairs, nibbles, ((nibbles + (nibbles >> 4)) & 0x0f0f'0f0f'0f0f'0f0f) * ones};
}
// The position of the set bit that has `rank` set bits below it. Without branches, since nothing
// could predict them.
constexpr unsigned place_of_bit(std::uint64_t bits, const BitCounts& counts,
                                std::uint32_t rank) noexcept {
  // The high bit of each byte: whether all bits up to it come before the one we want.
  constexpr std::uint64_t high_bits = ones << 7;
  const std::uint64_t before = ((rank * ones | high_bits) - counts.up_to_bytes) & high_bits;
  auto place = static_cast<unsigned>((before >> 7) * ones >> 56) * 8;
  rank -= static_cast<std::uint32_t>(counts.up_to_bytes << 8 >> place & 0xff);
  const auto pass = [&](std::uint64_t field_counts, unsigned width) {
    const auto here = static_cast<std::uint32_t>(field_counts >> place & ((1U << width) - 1));
    const bool is_before = here <= rank;
    rank -= is_before ? here : 0;
    place += is_before ? width : 0;
  };
  pass(counts.in_nibbles, 4);
  pass(counts.in_pairs, 2);
  pass(bits, 1);
  return place;
}

// A doubly linked list of slabs, by number plus one.
struct SlabList {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

// The beginning of each table, before the slabs.
//
// Invariant: each waiting slot of the class heap is in the quarantine once, as its ticket.
struct ClassStore {
  Random random;
  Quarantine<max_waiting> quarantine;
};

// A slot as a number other than 0, for the quarantine.
constexpr std::uint32_t ticket_of(std::uint32_t slab, unsigned slot) noexcept {
  return slab * max_slab_slots + slot + 1;
}
constexpr std::uint32_t slab_of_ticket(std::uint32_t ticket) noexcept {
  return (ticket - 1) / max_slab_slots;
}
constexpr unsigned slot_of_ticket(std::uint32_t ticket) noexcept {
  return (ticket - 1) % max_slab_slots;
}

}  // namespace ts::secure
