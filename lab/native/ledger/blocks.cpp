// One atomic word for each 8 bytes; see blocks.h.
#include "ledger/blocks.h"

#include <algorithm>
#include <atomic>

#include "ledger/address_map.h"

namespace ts {
namespace {

// The smallest distance between two blocks of any allocator: 8-byte blocks of jemalloc and others.
constexpr unsigned unit_bits = 3;

struct Words {
  std::atomic<std::uint64_t> at[leaf_span_bytes >> unit_bits];  // 40 bits of size, 24 of thread
};

constinit AddressMap<Words> map{};

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

}  // namespace

// Relaxed: a block's word is touched by who allocates it and by who frees it, and the program, or
// the allocator between a free and the next allocation, has already put the one behind the other.
Block enter_block(const void* address, Block block, bool& is_entered) {
  const auto where = reinterpret_cast<std::uintptr_t>(address);
  auto* const slot = map.slot(where);
  Words* const leaf = slot != nullptr ? map.leaf(*slot) : nullptr;
  is_entered = leaf != nullptr;
  if (leaf == nullptr) return {};
  return unpack(word_of(*leaf, where).exchange(pack(block), std::memory_order_relaxed));
}

Block take_block(const void* address) {
  const auto where = reinterpret_cast<std::uintptr_t>(address);
  Words* const leaf = map.find(where);
  if (leaf == nullptr) return {};
  return unpack(word_of(*leaf, where).exchange(0, std::memory_order_relaxed));
}

}  // namespace ts
