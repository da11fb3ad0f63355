#include "secure/large_table.h"

#include "base/bits.h"
#include "base/check.h"
#include "os/os.h"
#include "secure/space.h"

namespace ts::secure {
namespace {

constexpr std::size_t first_capacity = 64;

std::size_t table_bytes(std::size_t capacity) noexcept {
  return align_up(capacity * sizeof(LargeBlock), page_bytes());
}

// Maps a table between two inaccessible pages; null if the kernel refuses.
LargeBlock* map_table(std::size_t capacity) noexcept {
  const std::size_t bytes = table_bytes(capacity);
  auto* const reserved = static_cast<std::byte*>(reserve_elsewhere(bytes + 2 * page_bytes()));
  if (reserved == nullptr) return nullptr;
  if (os::commit(reserved + page_bytes(), bytes))
    return reinterpret_cast<LargeBlock*>(reserved + page_bytes());
  os::unmap_unused(reserved, bytes + 2 * page_bytes());
  return nullptr;
}

}  // namespace

std::size_t LargeTable::home_of(std::uintptr_t begin) const noexcept {
  return mix(begin / min_page_bytes) >> 20 & (capacity_ - 1);
}

// The slot that holds the block, or the free slot where it belongs.
LargeBlock& LargeTable::free_slot(std::uintptr_t begin) noexcept {
  std::size_t i = home_of(begin);
  while (slots_[i].begin != 0 && slots_[i].begin != begin) i = (i + 1) & (capacity_ - 1);
  return slots_[i];
}

bool LargeTable::grow() noexcept {
  LargeTable larger{};
  larger.capacity_ = capacity_ == 0 ? first_capacity : 2 * capacity_;
  larger.slots_ = map_table(larger.capacity_);
  if (larger.slots_ == nullptr) return false;
  for_each([&](const LargeBlock& block) { larger.free_slot(block.begin) = block; });
  if (capacity_ != 0)
    os::unmap_unused(reinterpret_cast<std::byte*>(slots_) - page_bytes(),
                     table_bytes(capacity_) + 2 * page_bytes());
  slots_ = larger.slots_;
  capacity_ = larger.capacity_;
  return true;
}

// At most two thirds full, so that a search for a missing block ends soon.
bool LargeTable::promise_place() noexcept {
  if ((count_ + promised_ + 1) * 3 > capacity_ * 2 && !grow()) return false;
  ++promised_;
  return true;
}

LargeBlock& LargeTable::insert(const LargeBlock& block) noexcept {
  check(promised_ != 0, "a large block has a promise of its place", &block);
  --promised_;
  ++count_;
  LargeBlock& slot = free_slot(block.begin);
  check(slot.begin == 0, "a large block is in the table once", &block);
  return slot = block;
}

LargeBlock* LargeTable::find(std::uintptr_t begin) noexcept {
  if (capacity_ == 0 || begin == 0) return nullptr;
  LargeBlock& found = free_slot(begin);
  return found.begin != 0 ? &found : nullptr;
}

LargeBlock* LargeTable::find_around(std::uintptr_t address) noexcept {
  LargeBlock* found = nullptr;
  for_each([&](LargeBlock& block) {
    if (address - block.reserved_begin < block.reserved_bytes) found = &block;
  });
  return found;
}

// Moves later blocks up into the hole, but none before its home, so that no hole cuts a block off.
void LargeTable::erase(LargeBlock& block) noexcept {
  check(count_ != 0 && block.begin != 0, "an erased large block is in the table", &block);
  --count_;
  const std::size_t mask = capacity_ - 1;
  auto hole = static_cast<std::size_t>(&block - slots_);
  for (std::size_t i = (hole + 1) & mask; slots_[i].begin != 0; i = (i + 1) & mask) {
    const std::size_t from_home = (i - home_of(slots_[i].begin)) & mask;
    if (from_home < ((i - hole) & mask)) continue;
    slots_[hole] = slots_[i];
    hole = i;
  }
  slots_[hole] = {};
}

Fault LargeTable::find_fault() noexcept {
  if ((count_ + promised_) * 3 > capacity_ * 2)
    return {"a table of large blocks is at most two thirds full", this};
  std::size_t count = 0;
  Fault fault;
  for_each([&](LargeBlock& block) {
    ++count;
    if (find(block.begin) != &block) fault = {"a table finds each of its large blocks", &block};
  });
  if (fault) return fault;
  if (count != count_) return {"a table counts its large blocks", this};
  return {};
}

}  // namespace ts::secure
