// Damage, walks and statistics of large blocks.
#include "secure/large_blocks.h"

namespace ts::secure {

const std::byte* LargeBlocks::find_overflow() noexcept {
  const Guard guard{lock_};
  const std::byte* found = nullptr;
  table_.for_each([&](const LargeBlock& block) {
    if (block.state == LargeState::used && !is_tail_intact(block)) found = memory_of(block);
  });
  return found;
}

Left LargeBlocks::find_left() noexcept {
  Left left;
  if (!lock_.try_lock()) return left;
  table_.for_each([&](const LargeBlock& block) {
    if (block.state != LargeState::used) return;
    ++left.blocks;
    left.bytes += block.bytes;
    if (is_tail_intact(block)) return;
    left.finding = Finding::overflow;
    left.where = memory_of(block);
    left.most_bytes = block.bytes;
  });
  lock_.unlock();
  return left;
}

bool LargeBlocks::walk(BlockVisitor visit, void* argument) noexcept {
  const Guard guard{lock_};
  bool goes_on = true;
  table_.for_each([&](const LargeBlock& block) {
    if (goes_on && block.state == LargeState::used)
      goes_on = visit({memory_of(block), block.bytes, BlockState::used, 0}, argument);
  });
  return goes_on;
}

LargeBlocks::Totals LargeBlocks::totals() noexcept {
  const Guard guard{lock_};
  Totals totals;
  table_.for_each([&](const LargeBlock& block) {
    if (block.state != LargeState::used) return;
    totals.bytes += pages_of(block);
    ++totals.blocks;
  });
  totals.maps = maps_;
  return totals;
}

}  // namespace ts::secure
