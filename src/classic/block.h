// A block of memory with its boundary tags (Knuth, The Art of Computer Programming 1, 2.5), which
// hold its size, neighbours and owner. Which blocks a heap may use and which one it chooses is up
// to the index and the strategy.
//
//        tag (8)       payload, aligned to 16
//   ... +---------------+---------------------------------------------------------+ next tag ...
//       | owner size .. | used: the program's. free: links (16) ... footer = size |
//       +---------------+---------------------------------------------------------+
//       ^ Block*, address = 8 mod 16
//
//   tag:  63......44 43.........4 3        2       1          0
//         owner      size / 16    cached   first   previous   used
//                                                  free
//
// Invariants: block_bytes() is a multiple of 16 and >= min_block_bytes. The fence at the end of a
// chunk has size 0, and is always used. `cached` is set only while a walk is under way (cached.h).
// `first` marks the first block of a chunk (source.h). `previous free` means: the block that ends
// where this one begins is free, has the same owner, and its footer is valid.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "base/check.h"
#include "base/heap_like.h"

namespace ts::classic {

inline constexpr std::size_t granule_bytes = 16;
inline constexpr std::size_t tag_bytes = 8;
inline constexpr std::size_t min_block_bytes = 32;  // tag, two links, footer
// 128 GiB, or 32 GiB where addresses have 48 bits (free_tree.h); free blocks may be larger.
inline constexpr std::size_t max_block_bytes = std::size_t{1} << (3 + 2 * (64 - address_bits));
inline constexpr std::uint32_t max_owner = (1U << 20) - 1;

// The size of the block that serves a request, or 0 if the request can never be served.
constexpr std::size_t block_bytes_for(std::size_t bytes) noexcept {
  if (bytes > max_block_bytes - granule_bytes) return 0;
  const std::size_t block_bytes = align_up(bytes + tag_bytes, granule_bytes);
  return block_bytes < min_block_bytes ? min_block_bytes : block_bytes;
}

// The value of a block's tag word.
class Tag {
 public:
  using Flags = std::uint64_t;
  static constexpr Flags used_flag = 1;
  static constexpr Flags previous_free_flag = 2;
  static constexpr Flags first_flag = 4;
  static constexpr Flags cached_flag = 8;
  // The flags that a block keeps when its size changes in place.
  static constexpr Flags place_flags = used_flag | previous_free_flag | first_flag;

  constexpr Tag(std::size_t block_bytes, std::uint32_t owner, Flags flags) noexcept
      : word_{std::uint64_t{owner} << 44 | block_bytes | flags} {}
  constexpr explicit Tag(std::uint64_t word) noexcept : word_{word} {}

  constexpr std::uint64_t word() const noexcept { return word_; }
  constexpr std::size_t block_bytes() const noexcept { return word_ & 0x0fff'ffff'fff0U; }
  constexpr std::uint32_t owner() const noexcept { return static_cast<std::uint32_t>(word_ >> 44); }
  constexpr bool used() const noexcept { return (word_ & used_flag) != 0; }
  constexpr bool previous_free() const noexcept { return (word_ & previous_free_flag) != 0; }
  constexpr bool first() const noexcept { return (word_ & first_flag) != 0; }
  constexpr bool cached() const noexcept { return (word_ & cached_flag) != 0; }
  constexpr Flags flags(Flags mask) const noexcept { return word_ & mask; }

  constexpr Tag with(Flags flag) const noexcept { return Tag{word_ | flag}; }
  constexpr Tag without(Flags flag) const noexcept { return Tag{word_ & ~flag}; }

 private:
  std::uint64_t word_;
};

// A block in place. All accesses to tags are relaxed: a tag orders nothing. The thread that acts on
// one holds the heap's lock, owns the block, or received it from the program, which ordered the
// hand-over. (usable_size reads a used block's own tag while a neighbour's owner may flip its
// `previous free` bit; the size bits do not change then.)
class Block {
 public:
  static Block* of_payload(void* payload) noexcept {
    return reinterpret_cast<Block*>(static_cast<std::byte*>(payload) - tag_bytes);
  }
  static const Block* of_payload(const void* payload) noexcept {
    return reinterpret_cast<const Block*>(static_cast<const std::byte*>(payload) - tag_bytes);
  }
  static Block* at(std::byte* address) noexcept { return reinterpret_cast<Block*>(address); }

  std::byte* begin() noexcept { return reinterpret_cast<std::byte*>(this); }
  const std::byte* begin() const noexcept { return reinterpret_cast<const std::byte*>(this); }
  std::byte* payload() noexcept { return begin() + tag_bytes; }
  const std::byte* payload() const noexcept { return begin() + tag_bytes; }
  std::uintptr_t address() const noexcept { return address_of(this); }

  Tag tag() const noexcept { return Tag{tag_.load(std::memory_order_relaxed)}; }
  void set_tag(Tag tag) noexcept { tag_.store(tag.word(), std::memory_order_relaxed); }
  // Replaces `expected` by `desired`, unless the tag has changed; then `expected` becomes the
  // current tag.
  bool replace_tag(Tag& expected, Tag desired) noexcept {
    std::uint64_t word = expected.word();
    const bool replaced =
        tag_.compare_exchange_strong(word, desired.word(), std::memory_order_relaxed);
    expected = Tag{word};
    return replaced;
  }

  std::size_t block_bytes() const noexcept { return tag().block_bytes(); }
  std::size_t payload_bytes() const noexcept { return block_bytes() - tag_bytes; }
  bool is_fence() const noexcept { return block_bytes() == 0; }

  Block* next() noexcept { return at(begin() + block_bytes()); }
  const Block* next() const noexcept { return const_cast<Block*>(this)->next(); }

  // The footer of the block before this one. Only where tag().previous_free().
  Block* previous() noexcept {
    return at(begin() - *reinterpret_cast<const std::size_t*>(begin() - tag_bytes));
  }
  void write_footer() noexcept {
    *reinterpret_cast<std::size_t*>(next()->begin() - tag_bytes) = block_bytes();
  }

  // The two words in which a free block keeps its links. Only for the index that holds the block.
  std::uint64_t& link_word(int side) noexcept {
    return reinterpret_cast<std::uint64_t*>(payload())[side];
  }
  std::uint64_t link_word(int side) const noexcept {
    return reinterpret_cast<const std::uint64_t*>(payload())[side];
  }

 private:
  Block() = delete;  // blocks are found in memory, never constructed

  std::atomic<std::uint64_t> tag_;
};

static_assert(sizeof(Block) == tag_bytes);

// Functions that need only a payload's own tag or the geometry; the base of every strategy.
struct TaggedPayloads {
  static std::size_t usable_size(const void* payload) noexcept {
    return Block::of_payload(payload)->payload_bytes();
  }
  static std::size_t good_size(std::size_t bytes) noexcept {
    const std::size_t block_bytes = block_bytes_for(bytes);
    return block_bytes == 0 ? 0 : block_bytes - tag_bytes;
  }
};

}  // namespace ts::classic
