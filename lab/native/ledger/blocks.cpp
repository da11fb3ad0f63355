// One atomic word for each 8 bytes, and one bit; see blocks.h.
#include "ledger/blocks.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "ledger/address_map.h"

namespace ts {
namespace {

// The smallest distance between two blocks of any allocator: 8-byte blocks of jemalloc and others.
constexpr unsigned unit_bits = 3;
constexpr std::uintptr_t unit_bytes = 1 << unit_bits;

struct Words {
  std::atomic<std::uint64_t> at[leaf_span_bytes >> unit_bits];  // 40 bits of size, 24 of thread
};

constinit AddressMap<Words> blocks{};

std::uint64_t pack(Block block) {
  return std::uint64_t{std::min(block.thread, most_threads)} << 40 |
         std::min(block.bytes, most_block_bytes);
}

Block unpack(std::uint64_t word) {
  return {word & most_block_bytes, static_cast<std::uint32_t>(word >> 40)};
}

std::atomic<std::uint64_t>& word_of(Words& leaf, std::uintptr_t address) {
  return leaf.at[(address & (leaf_span_bytes - 1)) >> unit_bits];
}

// --- what has been handed out: one bit for each unit ----------------------------------------------

constexpr std::uintptr_t word_span_bytes = unit_bytes * 64;

struct Bits {
  std::atomic<std::uint64_t> words[leaf_span_bytes / word_span_bytes];
};

constinit AddressMap<Bits> handed_out{};
// Stands where a leaf would for a MiB of which every byte has been handed out; never looked into.
constinit Bits everything{};

std::uint64_t count_units(Bits& leaf) {
  std::uint64_t units = 0;
  for (const auto& word : leaf.words) {
    units += static_cast<std::uint64_t>(std::popcount(word.load(std::memory_order_relaxed)));
  }
  return units;
}

// Relaxed everywhere: the bits of a block are only set while it belongs to the caller. The thread
// that had its memory before has given it back through the allocator, which orders the two.
// Neighbours' bits in the same word are why it is an addition (fetch_or) and not a store.
std::uint64_t note_in_leaf(Bits& leaf, std::uintptr_t begin, std::uintptr_t end) {
  std::uint64_t units = 0;
  std::uint64_t last_bit_before = 0;
  for (std::uintptr_t at = begin; at < end;) {
    const std::uintptr_t next = std::min((at | (word_span_bytes - 1)) + 1, end);
    const std::uintptr_t first_bit = at % word_span_bytes / unit_bytes;
    const std::uintptr_t last_bit = (next - 1) % word_span_bytes / unit_bytes;
    const std::uint64_t mask = (~std::uint64_t{0} >> (63 - (last_bit - first_bit))) << first_bit;
    auto& word = leaf.words[at % leaf_span_bytes / word_span_bytes];
    const std::uint64_t before = word.fetch_or(mask, std::memory_order_relaxed) & mask;
    units += static_cast<std::uint64_t>(std::popcount(before));
    last_bit_before = before >> last_bit & 1;
    at = next;
  }
  const std::uint64_t beyond_end = (unit_bytes - end % unit_bytes) % unit_bytes;
  return units * unit_bytes - last_bit_before * beyond_end;
}

std::uint64_t note_whole_leaf(AddressMap<Bits>::Slot& slot) {
  // acq_rel: pairs with the publishing of a leaf; its bits are seen. The leaf itself is lost, and
  // no other thread uses it: all of its MiB belongs to the caller.
  Bits* const before = slot.exchange(&everything, std::memory_order_acq_rel);
  if (before == nullptr) return 0;
  return before == &everything ? leaf_span_bytes : count_units(*before) * unit_bytes;
}

std::uint64_t note_part(std::uintptr_t begin, std::uintptr_t end) {
  auto* const slot = handed_out.slot(begin);
  if (slot == nullptr) return 0;
  if (end - begin == leaf_span_bytes) return note_whole_leaf(*slot);
  Bits* const leaf = handed_out.leaf(*slot);
  if (leaf == nullptr) return 0;
  return leaf == &everything ? end - begin : note_in_leaf(*leaf, begin, end);
}

}  // namespace

// Relaxed: a block's word is touched by its allocation and by its free. The program, or the
// allocator between a free and the next allocation, has already put the one behind the other.
Block enter_block(const void* address, Block block, bool& is_entered) {
  const auto where = reinterpret_cast<std::uintptr_t>(address);
  auto* const slot = blocks.slot(where);
  Words* const leaf = slot != nullptr ? blocks.leaf(*slot) : nullptr;
  is_entered = leaf != nullptr;
  if (leaf == nullptr) return {};
  return unpack(word_of(*leaf, where).exchange(pack(block), std::memory_order_relaxed));
}

Block take_block(const void* address) {
  const auto where = reinterpret_cast<std::uintptr_t>(address);
  Words* const leaf = blocks.find(where);
  if (leaf == nullptr) return {};
  return unpack(word_of(*leaf, where).exchange(0, std::memory_order_relaxed));
}

std::uint64_t note_handed_out(std::uintptr_t begin, std::uintptr_t end) {
  std::uint64_t bytes = 0;
  for (std::uintptr_t at = begin; at < end;) {
    const std::uintptr_t next = std::min((at | (leaf_span_bytes - 1)) + 1, end);
    bytes += note_part(at, next);
    at = next;
  }
  return bytes;
}

}  // namespace ts
