// Checks of the invariants of large_block.h, large_table.h and large_blocks.h.
#include "secure/checks.h"
#include "secure/large_blocks.h"
#include "secure/random.h"

namespace ts::secure {

Fault LargeBlocks::find_overlap(const LargeBlock& block) noexcept {
  const std::uintptr_t end = block.reserved_begin + block.reserved_bytes;
  Fault fault;
  // While a block's pages are being moved away, its addresses are briefly unmapped.
  table_.for_each([&](const LargeBlock& other) {
    if (&other != &block && other.state != LargeState::leaving && other.reserved_begin < end &&
        block.reserved_begin < other.reserved_begin + other.reserved_bytes)
      fault = {"no two large blocks have an address in common", &block};
  });
  return fault;
}

Fault LargeBlocks::find_idle_fault() noexcept {
  unsigned idle = 0;
  table_.for_each(
      [&](const LargeBlock& block) { idle += block.state == LargeState::idle ? 1 : 0; });
  if (idle_count_ > max_idle_blocks || idle != idle_count_)
    return {"each idle large block is listed", this};
  for (unsigned i = 0; i < idle_count_; ++i) {
    const LargeBlock* const block = table_.find(idle_[i].begin);
    if (block == nullptr || block->state != LargeState::idle ||
        block->reserved_bytes != idle_[i].bytes)
      return {"a listed idle range is that of an idle large block", block};
    for (unsigned j = 0; j < i; ++j) {
      if (idle_[i].begin == idle_[j].begin) return {"an idle large block is listed once", block};
    }
  }
  return {};
}

// Everything but overlaps, which only a newly added block can cause.
Fault LargeBlocks::find_table_fault() noexcept {
  if (const Fault fault = table_.find_fault()) return fault;
  Fault fault;
  unsigned waiting = 0;
  table_.for_each([&](const LargeBlock& block) {
    if (const Fault found = find_block_fault(block)) fault = found;
    waiting += block.state == LargeState::waiting ? 1 : 0;
  });
  if (fault) return fault;
  if (waiting_count_ > max_waiting_blocks || waiting != waiting_count_)
    return {"a quarantine has each waiting large block", this};
  std::size_t bytes = 0;
  for (unsigned i = 0; i < waiting_count_; ++i) {
    const LargeBlock* const block = table_.find(waiting_[i]);
    if (block == nullptr || block->state != LargeState::waiting)
      return {"a quarantine has waiting large blocks", block};
    bytes += block->reserved_bytes;
    for (unsigned j = 0; j < i; ++j) {
      if (waiting_[i] == waiting_[j]) return {"a large block waits once", block};
    }
  }
  if (bytes != waiting_bytes_) return {"waiting_bytes sums the waiting large blocks", this};
  if (const Fault found = find_idle_fault()) return found;
  return find_group_fault();
}

Fault LargeBlocks::find_fault(bool is_at_rest) noexcept {
  const Guard guard{lock_};
  Fault fault = find_table_fault();
  bool is_leaving = false;
  table_.for_each([&](const LargeBlock& block) TS_NO_ANALYSIS {
    if (!fault) fault = find_overlap(block);
    is_leaving = is_leaving || block.state == LargeState::leaving;
  });
  // A fork may cut off a thread that holds a promise or is removing a block.
  if (fault || !is_at_rest || Random::is_child_of_fork()) return fault;
  if (is_leaving) return {"at rest no large block is leaving", this};
  if (table_.promised() != 0) return {"at rest no place is promised to a large block", this};
  return {};
}

void LargeBlocks::check_slow_path(std::uintptr_t changed) noexcept {
  if (!is_check_due<slow_paths_per_check>()) return;
  require_none(find_table_fault());
  if (const LargeBlock* const block = table_.find(changed); block != nullptr)
    require_none(find_overlap(*block));
}

}  // namespace ts::secure
