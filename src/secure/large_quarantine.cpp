// How large blocks leave: they lose their memory, wait in the quarantine, and are then reused or
// unmapped.
#include "base/check.h"
#include "os/bad_access.h"
#include "os/os.h"
#include "secure/checks.h"
#include "secure/large_blocks.h"
#include "secure/mappings.h"

namespace ts::secure {
namespace {

// Address space in the quarantine, unless a single block has more.
constexpr std::size_t max_waiting_bytes = std::size_t{256} << 20;

// The longest range kept for reuse. Filling a longer one takes so many faults that two system calls
// do not matter.
constexpr std::size_t max_idle_bytes = std::size_t{4} << 20;

}  // namespace

// Takes the memory of a block that is leaving and puts the block into the quarantine, evicting
// others if that is full.
void LargeBlocks::put_away(const LargeBlock& block) noexcept {
  // Protecting the whole range makes it one mapping again. A part of a group stays accessible.
  const std::size_t room = block.reserved_begin + block.reserved_bytes - block.begin;
  const bool is_protected =
      !block.is_in_group &&
      os::protect(memory_of(block), block.has_remains ? room : pages_of(block));
  if (!is_protected && !os::discard(memory_of(block), pages_of(block)))
    make_zero(memory_of(block), pages_of(block));  // at least it is zero
  const Guard guard{lock_};
  LargeBlock& now = *table_.find(block.begin);
  check(now.state == LargeState::leaving, "a block that is put away is leaving", &now);
  // Then it skips the quarantine. (Under the lock, so that the thread that gets these addresses
  // next enters them into the table after this.)
  if (!is_protected && !block.is_in_group) return give_back(block.begin);
  now.state = LargeState::waiting;
  while (waiting_count_ == max_waiting_blocks ||
         (waiting_count_ != 0 && waiting_bytes_ + block.reserved_bytes > max_waiting_bytes))
    evict(random_.below(waiting_count_));
  waiting_[waiting_count_++] = block.begin;
  waiting_bytes_ += block.reserved_bytes;
  if constexpr (debug_level >= 2) check_slow_path(block.begin);
}

// Takes a block out of the quarantine. Its range becomes idle, replacing another if there are too
// many, or is unmapped if it is long.
void LargeBlocks::evict(unsigned index) noexcept {
  check(index < waiting_count_, "a block that leaves the quarantine is in it");
  const std::uintptr_t begin = waiting_[index];
  LargeBlock& block = *table_.find(begin);
  const std::size_t bytes = block.reserved_bytes;
  check(block.state == LargeState::waiting, "a block that leaves the quarantine was waiting",
        &block);
  waiting_[index] = waiting_[--waiting_count_];
  waiting_bytes_ -= bytes;
  if (block.is_in_group) {
    Group& group = groups_[group_of(bytes)];
    block.state = LargeState::grouped;
    block.bytes = group.free;
    group.free = begin;
    return;
  }
  if (bytes > max_idle_bytes) return give_back(begin);
  if (idle_count_ == max_idle_blocks) give_back_idle(random_.below(idle_count_));
  table_.find(begin)->state = LargeState::idle;
  idle_[idle_count_++] = {begin, bytes};
}

// Takes the shortest idle range of at least `bytes` and less than twice that, for a block that is
// not in the table yet.
bool LargeBlocks::take_idle(std::size_t bytes, LargeBlock& block) noexcept {
  unsigned best = max_idle_blocks;
  for (unsigned i = 0; i < idle_count_; ++i) {
    if (idle_[i].bytes >= bytes && idle_[i].bytes < 2 * bytes &&
        (best == max_idle_blocks || idle_[i].bytes < idle_[best].bytes))
      best = i;
  }
  if (best == max_idle_blocks) return false;
  LargeBlock& found = *table_.find(idle_[best].begin);
  check(found.state == LargeState::idle, "a range that is used again was idle", &found);
  block.reserved_begin = found.reserved_begin;
  block.reserved_bytes = found.reserved_bytes;
  erase(found);
  idle_[best] = idle_[--idle_count_];
  return true;
}

void LargeBlocks::give_back_idle(unsigned index) noexcept {
  const std::uintptr_t begin = idle_[index].begin;
  idle_[index] = idle_[--idle_count_];
  give_back(begin);
}

// Unmaps the whole range of a block. The kernel may refuse: unmapping the middle of a mapping
// leaves two, and their number is limited.
void LargeBlocks::give_back(std::uintptr_t begin) noexcept {
  LargeBlock& block = *table_.find(begin);
  block.state = LargeState::stuck;
  if (os::unmap_unused(reinterpret_cast<void*>(block.reserved_begin), block.reserved_bytes))
    erase(block);
}

void LargeBlocks::end_quarantine() noexcept {
  const Guard guard{lock_};
  while (waiting_count_ != 0) evict(waiting_count_ - 1);
  while (idle_count_ != 0) give_back_idle(idle_count_ - 1);
}

bool LargeBlocks::give_back_stuck() noexcept {
  const Guard guard{lock_};
  bool gave = false;
  // Erasing a block may move others to places already visited, so repeat until none is found.
  for (bool goes_on = true; goes_on;) {
    goes_on = table_.erase_some([&](LargeBlock& block) TS_NO_ANALYSIS {
      const bool is_taken =
          block.state == LargeState::stuck &&
          os::unmap_unused(reinterpret_cast<void*>(block.reserved_begin), block.reserved_bytes);
      if (is_taken) roots.counts->mappings.guarded_blocks.fetch_sub(1, std::memory_order_relaxed);
      return is_taken;
    });
    gave = gave || goes_on;
  }
  return gave;
}

}  // namespace ts::secure
