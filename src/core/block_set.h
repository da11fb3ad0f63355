// A set of blocks of one slab.
#pragma once

#include "core/page_map.h"

namespace ts::engine {

// One bit for each block of a slab, by number.
class BlockSet {
 public:
  explicit BlockSet(const Span& slab) noexcept
      : begin_{memory_of(&slab)},
        block_bytes_{size_classes[slab.size_class].block_bytes},
        blocks_{slab.slab_blocks} {}

  // Ignores blocks of other slabs.
  void add_list(const Block* block) noexcept {
    for (std::uint32_t left = max_in_bin; block != nullptr && left != 0;
         block = block->next, --left) {
      const std::size_t offset = address_of(block) - address_of(begin_);
      const std::size_t number = offset / block_bytes_;
      if (number < blocks_) add(number);
    }
  }
  void add(std::size_t number) noexcept { add_word(number / 64, std::uint64_t{1} << number % 64); }
  void add_word(std::size_t index, std::uint64_t word) noexcept { words_[index] |= word; }
  bool contains(std::size_t number) const noexcept {
    return (words_[number / 64] >> number % 64 & 1) != 0;
  }

 private:
  const std::byte* begin_;
  std::size_t block_bytes_;
  std::size_t blocks_;
  std::uint64_t words_[max_slab_blocks / 64] = {};
};

}  // namespace ts::engine
