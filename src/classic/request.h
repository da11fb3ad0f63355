// A request as the fits and the heaps see it: the size of its block, and where an aligned payload
// begins in a free block.
#pragma once

#include "classic/block.h"

namespace ts::classic {

struct Request {
  std::size_t block_bytes;   // the block to return to the program
  std::size_t search_bytes;  // the block that the fit must find; more than block_bytes only for
                             // large alignments
  std::size_t alignment;

  // search_bytes is 0 if no heap can ever satisfy this.
  static constexpr Request of(std::size_t bytes, std::size_t alignment) noexcept {
    const std::size_t block_bytes = block_bytes_for(bytes);
    if (block_bytes == 0 || alignment > max_block_bytes / 2) return {0, 0, alignment};
    const std::size_t slack = alignment > min_alignment ? alignment + min_block_bytes : 0;
    return {block_bytes, block_bytes > max_block_bytes - slack ? 0 : block_bytes + slack,
            alignment};
  }
};

// Bytes of a free block at `block` that stay free before a payload with the alignment of the
// request: none, or enough for a block.
inline std::size_t head_before_aligned(std::uintptr_t block, const Request& request) noexcept {
  if (request.alignment <= min_alignment) return 0;
  std::size_t head_bytes = -(block + tag_bytes) & (request.alignment - 1);
  while (head_bytes != 0 && head_bytes < min_block_bytes) head_bytes += request.alignment;
  return head_bytes;
}

}  // namespace ts::classic
