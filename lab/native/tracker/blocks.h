// The blocks in use, and which memory was allocated before: one word and one bit for each 8 bytes
// of address space that has contained blocks, in the tracker's own mappings.
//
// There are no locks. Each word is exchanged as a whole, so the table is right at every moment,
// even for a child forked in between.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <optional>

namespace ts {

struct Block {
  std::uint64_t bytes = 0;
  std::uint32_t thread = 0;  // that allocated it; 0: there is no such block
  bool exists() const { return thread != 0; }
};

inline constexpr std::uint64_t max_block_bytes = (std::uint64_t{1} << 40) - 1;  // a cap
inline constexpr std::uint32_t max_threads = (1U << 24) - 1;  // later ones share this number

inline constexpr unsigned leaf_bits = 27;
inline constexpr unsigned address_bits = 48;
// The smallest distance between two blocks of any allocator: 8-byte blocks of jemalloc and others.
inline constexpr std::uintptr_t unit_bytes = 8;
inline constexpr std::uintptr_t units = (std::uintptr_t{1} << leaf_bits) / unit_bytes;
inline constexpr std::uintptr_t group_bytes = unit_bytes * 64;  // that share a word of bits
inline constexpr std::uint64_t max_looked_at = std::uint64_t{8} << 30;

struct Leaf {
  std::atomic<std::uint64_t> blocks[units];           // 24 bits of thread, 40 of size
  std::atomic<std::uint64_t> handed_out[units / 64];  // a bit for each unit
};

// Each changes once, from null to an address. (An array of so many atomics takes clang too long to
// initialise at compile time.)
inline constinit Leaf* leaves[std::size_t{1} << (address_bits - leaf_bits)]{};

inline Leaf* map_leaf() {
  const int saved_errno = errno;
  void* const mapped = mmap(nullptr, sizeof(Leaf), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  // It is sparse: with a huge page for each touched word it could take most of the machine's
  // memory.
  if (mapped != MAP_FAILED) madvise(mapped, sizeof(Leaf), MADV_NOHUGEPAGE);
  errno = saved_errno;
  return mapped != MAP_FAILED ? static_cast<Leaf*>(mapped) : nullptr;
}

// Null if nothing was entered, for an address that no program can have, and if memory runs out.
inline Leaf* leaf_of(std::uintptr_t address, bool is_wanted) {
  if (address >> address_bits != 0) return nullptr;
  const std::atomic_ref<Leaf*> place{leaves[address >> leaf_bits]};
  // acquire: pairs with the release below; the zeros are seen
  Leaf* leaf = place.load(std::memory_order_acquire);
  if (leaf != nullptr || !is_wanted) return leaf;
  Leaf* const fresh = map_leaf();
  if (fresh == nullptr || place.compare_exchange_strong(leaf, fresh, std::memory_order_acq_rel)) {
    return fresh;
  }
  munmap(fresh, sizeof(Leaf));
  return leaf;  // of the thread that was first
}

inline std::uintptr_t unit_of(std::uintptr_t address) { return address / unit_bytes % units; }

// Relaxed: a block's word is touched by its allocation and by its free. The program, or the
// allocator between a free and the next allocation, has already ordered them.
inline Block exchange(Leaf& leaf, std::uintptr_t address, std::uint64_t word) {
  const std::uint64_t before =
      leaf.blocks[unit_of(address)].exchange(word, std::memory_order_relaxed);
  return {before & max_block_bytes, static_cast<std::uint32_t>(before >> 40)};
}

// How many of the bits of units from `begin` to `end`, in one group, were already set. Relaxed:
// they are set only while the memory belongs to the caller. Neighbours share the word, hence
// fetch_or.
inline std::uint64_t note_in_group(Leaf& leaf, std::uintptr_t begin, std::uintptr_t end) {
  const std::uintptr_t first = unit_of(begin) % 64;
  const std::uintptr_t last = unit_of(end - 1) % 64;
  const std::uint64_t mask = (~std::uint64_t{0} >> (63 - (last - first))) << first;
  auto& word = leaf.handed_out[unit_of(begin) / 64];
  const std::uint64_t before = word.fetch_or(mask, std::memory_order_relaxed) & mask;
  // The block may end inside its last unit.
  const std::uint64_t beyond =
      (before >> last & 1) * ((unit_bytes - end % unit_bytes) % unit_bytes);
  return static_cast<std::uint64_t>(std::popcount(before)) * unit_bytes - beyond;
}

// Enters a block and returns the previous one; nothing if there is no memory for it.
inline std::optional<Block> enter_block(const void* address, Block block) {
  const auto where = reinterpret_cast<std::uintptr_t>(address);
  Leaf* const leaf = leaf_of(where, true);
  if (leaf == nullptr) return std::nullopt;
  const std::uint64_t thread = std::min(block.thread, max_threads);
  return exchange(*leaf, where, thread << 40 | std::min(block.bytes, max_block_bytes));
}

// Removes a block; returns a nonexistent one if it is unknown.
inline Block take_block(const void* address) {
  const auto where = reinterpret_cast<std::uintptr_t>(address);
  Leaf* const leaf = leaf_of(where, false);
  return leaf != nullptr ? exchange(*leaf, where, 0) : Block{};
}

// Notes that bytes `from` to `to` of a block are allocated, and returns how many of them had been
// before, at a resolution of 8 bytes. Blocks of more than 8 GiB are skipped.
inline std::uint64_t note_returned_block(const void* block, std::uint64_t from, std::uint64_t to) {
  // An end inside a unit has marked all of it.
  from = (from + unit_bytes - 1) / unit_bytes * unit_bytes;
  if (from >= to || to - from > max_looked_at) return 0;
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  std::uint64_t bytes = 0;
  for (std::uintptr_t at = address + from; at < address + to;) {
    const std::uintptr_t next = std::min((at | (group_bytes - 1)) + 1, address + to);
    Leaf* const leaf = leaf_of(at, true);
    if (leaf == nullptr) break;
    bytes += note_in_group(*leaf, at, next);
    at = next;
  }
  return bytes;
}

}  // namespace ts
