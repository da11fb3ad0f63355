// How large blocks leave: without memory, into the quarantine, back to the system.
#include "base/check.h"
#include "os/bad_access.h"
#include "os/os.h"
#include "secure/checks.h"
#include "secure/large_blocks.h"

namespace ts::secure {
namespace {

// Addresses that wait in the quarantine, unless a single block has more.
constexpr std::size_t max_waiting_bytes = std::size_t{256} << 20;

}  // namespace

// Takes the memory of a block that is leaving, and puts the block into the quarantine. Others leave
// that for it, if it is full.
void LargeBlocks::put_away(std::uintptr_t begin) noexcept {
  LargeBlock block;
  {
    const Guard guard{lock_};
    block = *table_.find(begin);
  }
  // As one mapping again, with what is around it.
  const bool is_withdrawn = os::withdraw(memory_of(block), pages_of(block));
  if (!is_withdrawn) os::discard(memory_of(block), pages_of(block));  // it is zero, at least
  const Guard guard{lock_};
  LargeBlock& now = *table_.find(begin);
  check(now.state == LargeState::leaving, "a block that is put away is leaving", &now);
  // Without a quarantine, then. (Under the lock: the thread that gets these addresses next enters
  // them into the table after this.)
  if (!is_withdrawn &&
      os::unmap(reinterpret_cast<void*>(block.reserved_begin), block.reserved_bytes))
    return table_.erase(now);
  now.state = LargeState::waiting;
  while (waiting_count_ == max_waiting_blocks ||
         (waiting_count_ != 0 && waiting_bytes_ + block.reserved_bytes > max_waiting_bytes))
    evict(random_.below(waiting_count_));
  waiting_[waiting_count_++] = begin;
  waiting_bytes_ += block.reserved_bytes;
  if constexpr (debug_level >= 2) check_slow_path(begin);
}

// Gives the addresses of a waiting block back to the system.
void LargeBlocks::evict(unsigned index) noexcept {
  check(index < waiting_count_, "a block that leaves the quarantine is in it");
  LargeBlock& block = *table_.find(waiting_[index]);
  check(block.state == LargeState::waiting, "a block that leaves the quarantine was waiting",
        &block);
  waiting_[index] = waiting_[--waiting_count_];
  waiting_bytes_ -= block.reserved_bytes;
  // The system may refuse: a range in the middle of one mapping leaves two, of which a process has
  // a limited number.
  block.state = LargeState::stuck;
  if (os::unmap(reinterpret_cast<void*>(block.reserved_begin), block.reserved_bytes))
    table_.erase(block);
}

void LargeBlocks::end_quarantine() noexcept {
  const Guard guard{lock_};
  while (waiting_count_ != 0) evict(waiting_count_ - 1);
}

bool LargeBlocks::give_back_stuck() noexcept {
  const Guard guard{lock_};
  bool gave = false;
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    LargeBlock* stuck = nullptr;
    table_.for_each([&](LargeBlock& block) {
      if (block.state == LargeState::stuck) stuck = &block;
    });
    if (stuck != nullptr &&
        os::unmap(reinterpret_cast<void*>(stuck->reserved_begin), stuck->reserved_bytes)) {
      table_.erase(*stuck);
      gave = goes_on = true;
    }
  }
  return gave;
}

}  // namespace ts::secure
