// One thread's cache of strategy `cached`: a stack of blocks per exact block size, and the rules
// for when the cache is out of balance. cached.h decides where blocks come from and return to.
//
// Only its own thread accesses a cache, except that statistics read `bytes` and `blocks`, and that
// the child of a fork empties the caches of all other threads. It drops the blocks of a cache that
// the fork caught in the middle of a change (`busy`).
//
// Invariant: `blocks` and `bytes` are the sums over all stacks; each stack is linked through the
// first word of its blocks, newest first.
#pragma once

#include <atomic>

#include "base/bits.h"
#include "base/counter.h"
#include "classic/block.h"
#include "os/os.h"

namespace ts::classic {

// Larger blocks bypass the caches. So do requests for an alignment above 16, which a cached block
// of the right size may not have.
inline constexpr std::size_t max_cached_block_bytes = 1024;
// A batch is about this many bytes: one lock operation covers a page's worth of requests, and a
// cache holds little of rarely used sizes.
inline constexpr std::size_t batch_bytes = 4096;
inline constexpr unsigned max_batch_blocks = 32;
// A thread's cache holds at most about this much over all sizes.
inline constexpr std::size_t max_cache_bytes = std::size_t{256} << 10;

constexpr unsigned batch_blocks(std::size_t block_bytes) noexcept {
  const std::size_t blocks = batch_bytes / block_bytes;
  return blocks < max_batch_blocks ? static_cast<unsigned>(blocks) : max_batch_blocks;
}

inline constexpr unsigned cache_bins =
    (max_cached_block_bytes - min_block_bytes) / granule_bytes + 1;

constexpr bool is_cached_size(std::size_t block_bytes) noexcept {
  return block_bytes >= min_block_bytes && block_bytes <= max_cached_block_bytes;
}
constexpr unsigned bin_of(std::size_t block_bytes) noexcept {
  return static_cast<unsigned>((block_bytes - min_block_bytes) / granule_bytes);
}
constexpr std::size_t block_bytes_of(unsigned bin) noexcept {
  return min_block_bytes + bin * granule_bytes;
}

struct ThreadCache {
  struct Bin {
    Block* newest;  // linked through link_word(0)
    unsigned blocks;
  };

  static std::size_t mapped_bytes() noexcept {
    return align_up(sizeof(ThreadCache), os::page_bytes());
  }

  void push(Block* block, std::size_t block_bytes) noexcept {
    Bin& stack = stacks[bin_of(block_bytes)];
    block->link_word(0) = address_of(stack.newest);
    stack.newest = block;
    ++stack.blocks;
    bytes += block_bytes;
    ++blocks;
  }

  // Freed twice in a row: the only double free that is cheap to detect, without walking the stack.
  bool is_newest(const Block* block, std::size_t block_bytes) const noexcept {
    return stacks[bin_of(block_bytes)].newest == block;
  }

  Block* pop(std::size_t block_bytes) noexcept {
    Bin& stack = stacks[bin_of(block_bytes)];
    Block* const block = stack.newest;
    if (block == nullptr) return nullptr;
    stack.newest = older(block);
    --stack.blocks;
    bytes -= block_bytes;
    --blocks;
    return block;
  }

  static Block* older(const Block* block) noexcept {
    return reinterpret_cast<Block*>(block->link_word(0));
  }

  // One size holds more than two batches: the thread frees more of it than it allocates.
  bool size_is_out_of_balance(std::size_t block_bytes) const noexcept {
    return stacks[bin_of(block_bytes)].blocks > 2 * batch_blocks(block_bytes);
  }
  // All sizes together hold more than a thread should keep from the others.
  bool is_out_of_balance() const noexcept { return bytes > max_cache_bytes; }

  // Removes all but the newest `keep` blocks of a size; they are linked from the one returned.
  Block* cut(unsigned bin, unsigned keep) noexcept {
    Bin& stack = stacks[bin];
    if (stack.blocks <= keep) return nullptr;
    Block* oldest_kept = nullptr;
    Block* cut_off = stack.newest;
    for (unsigned i = 0; i < keep; ++i) {
      oldest_kept = cut_off;
      cut_off = older(cut_off);
    }
    if (oldest_kept == nullptr) {
      stack.newest = nullptr;
    } else {
      oldest_kept->link_word(0) = 0;
    }
    const unsigned removed = stack.blocks - keep;
    stack.blocks = keep;
    blocks -= removed;
    bytes -= removed * block_bytes_of(bin);
    return cut_off;
  }

  void forget_all() noexcept {
    for (Bin& stack : stacks) stack = {};
    bytes.reset();
    blocks.reset();
    busy.store(false, std::memory_order_relaxed);
  }

  Bin stacks[cache_bins];  // own
  Counter bytes;           // own writes, any reads
  Counter blocks;          // likewise
  std::atomic<bool> busy;  // own; read in the child of a fork
  ThreadCache* next;       // const: the list of all
  ThreadCache* next_idle;  // lock_
};

}  // namespace ts::classic
