#include "secure/large_block.h"

namespace ts::secure {

Fault find_block_fault(const LargeBlock& block) noexcept {
  const std::uintptr_t reserved_end = block.reserved_begin + block.reserved_bytes;
  if (block.begin % page_bytes() != 0) return {"a large block begins at a page", &block};
  if (block.bytes != usable_for(block.asked))
    return {"a large block has what its request gets", &block};
  if (block.begin - block.reserved_begin < page_bytes() || block.begin < block.reserved_begin ||
      reserved_end < block.begin + pages_of(block) + page_bytes())
    return {"a page before and behind a large block is reserved", &block};
  if ((block.canary & ~canary_mask) != 0) return {"a canary begins with a zero byte", &block};
  return {};
}

}  // namespace ts::secure
