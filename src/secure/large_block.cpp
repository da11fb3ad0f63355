#include "secure/large_block.h"

namespace ts::secure {

Fault find_block_fault(const LargeBlock& block) noexcept {
  const std::uintptr_t reserved_end = block.reserved_begin + block.reserved_bytes;
  if (block.begin % page_bytes() != 0) return {"a large block begins at a page", &block};
  if (!is_canary(block.canary)) return {"a canary begins with a zero and a mark", &block};
  if (block.is_in_group) {
    if (block.begin < block.reserved_begin || block.begin >= reserved_end ||
        (block.state != LargeState::grouped && pages_of(block) > reserved_end - block.begin))
      return {"a block of a group lies within its part", &block};
    return {};
  }
  if (block.begin - block.reserved_begin < page_bytes() || block.begin < block.reserved_begin ||
      reserved_end < block.begin + pages_of(block) + page_bytes())
    return {"a page before and behind a large block is reserved", &block};
  return {};
}

}  // namespace ts::secure
