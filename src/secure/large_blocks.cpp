#include "secure/large_blocks.h"

#include <cstring>

#include "base/bits.h"
#include "os/bad_access.h"
#include "os/os.h"
#include "secure/class_heap.h"
#include "secure/size_classes.h"

namespace ts::secure {
namespace {

// The inaccessible ranges on either side: at least a page, and up to an eighth of the block.
constexpr std::size_t max_guard_pages = 64;

// Addresses that wait in the quarantine, unless a single block has more.
constexpr std::size_t max_waiting_bytes = std::size_t{256} << 20;

std::size_t pages_of(const LargeBlock& block) noexcept { return align_up(block.bytes, page_bytes); }
std::byte* memory_of(const LargeBlock& block) noexcept {
  return reinterpret_cast<std::byte*>(block.begin);
}

// Behind the block, up to the end of its last page: a canary and zeros; or nothing, where the
// inaccessible range follows.
void write_tail(const LargeBlock& block) noexcept {
  if (block.bytes % page_bytes != 0)
    std::memcpy(memory_of(block) + block.bytes, &block.canary, canary_bytes);
}
bool is_tail_intact(const LargeBlock& block) noexcept {
  const std::size_t tail = pages_of(block) - block.bytes;
  if (tail == 0) return true;
  std::uint64_t found = 0;
  const std::byte* const end = memory_of(block) + block.bytes;
  std::memcpy(&found, end, canary_bytes);
  return found == block.canary && is_zero(end + canary_bytes, tail - canary_bytes);
}

// Addresses that nothing is known of give back what they can.
void unreserve(const LargeBlock& block) noexcept {
  os::unmap(reinterpret_cast<void*>(block.reserved_begin), block.reserved_bytes);
}

// Gives back a part of a range, at its begin or end; if the system refuses, the range stays longer.
void cut(LargeBlock& block, std::uintptr_t begin, std::uintptr_t end) noexcept {
  const std::uintptr_t reserved_end = block.reserved_begin + block.reserved_bytes;
  if (block.reserved_begin < begin &&
      os::unmap(reinterpret_cast<void*>(block.reserved_begin), begin - block.reserved_begin))
    block.reserved_begin = begin;
  block.reserved_bytes = reserved_end - block.reserved_begin;
  if (end < reserved_end && os::unmap(reinterpret_cast<void*>(end), reserved_end - end))
    block.reserved_bytes = end - block.reserved_begin;
}

}  // namespace

// Addresses for a block, without memory, and for so many bytes behind it; and a place in the table.
bool LargeBlocks::reserve(std::size_t bytes, std::size_t alignment, std::size_t room,
                          LargeBlock& block) noexcept {
  const std::size_t usable = usable_for(bytes);
  const std::size_t pages = align_up(usable, page_bytes);
  const std::size_t spread = pages / page_bytes / 8;
  std::size_t front = 1;
  std::size_t rear = 1;
  block = {};
  {
    const Guard guard{lock_};
    if (!table_.promise_place()) return false;
    const auto most =
        static_cast<std::uint32_t>(spread >= max_guard_pages ? max_guard_pages : spread + 1);
    front += random_.below(most);
    rear += random_.below(most);
    block.canary = random_.next_64() & ~std::uint64_t{0xff};
  }
  front *= page_bytes;
  rear = rear * page_bytes + align_up(room, page_bytes);
  const std::size_t unaligned = alignment > page_bytes ? alignment : 0;
  const std::size_t reserved = front + pages + rear + unaligned;
  void* const begin = os::reserve(reserved);
  if (begin == nullptr) {
    const Guard guard{lock_};
    table_.break_promise();
    return false;
  }
  block.reserved_begin = address_of(begin);
  block.reserved_bytes = reserved;
  block.begin = align_up(block.reserved_begin + front, unaligned != 0 ? unaligned : page_bytes);
  block.bytes = usable;
  block.asked = bytes;
  if (unaligned != 0) cut(block, block.begin - front, block.begin + pages + rear);
  return true;
}

std::byte* LargeBlocks::allocate(std::size_t bytes, std::size_t alignment) noexcept {
  LargeBlock block;
  if (!reserve(bytes, alignment, 0, block)) return nullptr;
  const bool has_memory = os::commit(memory_of(block), pages_of(block));
  if (has_memory) {
    write_tail(block);
  } else {
    unreserve(block);
  }
  const Guard guard{lock_};
  if (!has_memory) {
    table_.break_promise();
    return nullptr;
  }
  table_.insert(block);
  ++maps_;
  return memory_of(block);
}

// The block that begins there and is in use, whatever its canary; null of all else.
LargeBlock* LargeBlocks::find_used(const void* p, Finding& finding) noexcept {
  LargeBlock* const block = table_.find(address_of(p));
  if (block == nullptr) {
    LargeBlock* const around = table_.find_around(address_of(p));
    finding = around == nullptr                   ? Finding::foreign
              : around->state == LargeState::used ? Finding::no_beginning
                                                  : Finding::not_in_use;
    return nullptr;
  }
  if (block->state != LargeState::used) {
    finding = Finding::not_in_use;
    return nullptr;
  }
  finding = is_tail_intact(*block) ? Finding::sound : Finding::overflow;
  return block;
}

Finding LargeBlocks::look_at(const void* p, Sizes& sizes) noexcept {
  const Guard guard{lock_};
  Finding finding = Finding::sound;
  const LargeBlock* const block = find_used(p, finding);
  if (block != nullptr) sizes = {block->bytes, block->asked};
  return finding;
}

Finding LargeBlocks::release(const void* p, bool ignores_canary) noexcept {
  {
    const Guard guard{lock_};
    Finding finding = Finding::sound;
    LargeBlock* const block = find_used(p, finding);
    if (finding != Finding::sound && !(finding == Finding::overflow && ignores_canary))
      return finding;
    block->state = LargeState::leaving;
  }
  put_away(address_of(p));
  return Finding::sound;
}

// Takes the memory of a block that is leaving, and puts it into the quarantine, for which another
// may have to go.
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
  // Without a quarantine, then. (Under the lock: who is given these addresses next, enters them
  // into the table behind us.)
  if (!is_withdrawn &&
      os::unmap(reinterpret_cast<void*>(block.reserved_begin), block.reserved_bytes))
    return table_.erase(now);
  now.state = LargeState::waiting;
  while (waiting_count_ == max_waiting_blocks ||
         (waiting_count_ != 0 && waiting_bytes_ + block.reserved_bytes > max_waiting_bytes))
    evict(random_.below(waiting_count_));
  waiting_[waiting_count_++] = begin;
  waiting_bytes_ += block.reserved_bytes;
}

// Gives the addresses of one that waits back to the system.
void LargeBlocks::evict(unsigned index) noexcept {
  LargeBlock& block = *table_.find(waiting_[index]);
  waiting_[index] = waiting_[--waiting_count_];
  waiting_bytes_ -= block.reserved_bytes;
  // From a mapping in the middle of others that the system took for one with it, nothing can be
  // taken without making it two.
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

bool LargeBlocks::resize(const void* p, std::size_t bytes) noexcept {
  const Guard guard{lock_};
  Finding finding = Finding::sound;
  LargeBlock* const block = find_used(p, finding);
  if (finding != Finding::sound) return false;
  const std::size_t usable = usable_for(bytes);
  const std::size_t now = pages_of(*block);
  const std::size_t wanted = align_up(usable, page_bytes);
  if (wanted > now) {
    // A page at least stays what nobody may touch.
    const std::size_t behind =
        block->reserved_begin + block->reserved_bytes - block->begin - now - page_bytes;
    if (wanted - now > behind || !os::commit(memory_of(*block) + now, wanted - now)) return false;
  }
  if (wanted < now &&
      (bytes <= max_small_bytes || !os::withdraw(memory_of(*block) + wanted, now - wanted)))
    return false;
  // Neither the old canary nor what the program no longer has is left behind.
  const std::size_t kept = usable < block->bytes ? usable : block->bytes;
  const std::size_t end = wanted < now ? wanted : now;
  if (kept < end) std::memset(memory_of(*block) + kept, 0, end - kept);
  block->bytes = usable;
  block->asked = bytes;
  write_tail(*block);
  return true;
}

std::byte* LargeBlocks::move(const void* p, std::size_t bytes) noexcept {
  LargeBlock old;
  if (bytes <= max_small_bytes) return nullptr;  // of a block that is here for its alignment
  {
    const Guard guard{lock_};
    Finding finding = Finding::sound;
    LargeBlock* const block = find_used(p, finding);
    if (block == nullptr || bytes <= block->bytes) return nullptr;
    block->state = LargeState::leaving;
    old = *block;
  }
  LargeBlock moved;
  // What grows once tends to grow again: half as much again as address space, if there is so much.
  const bool is_reserved =
      reserve(bytes, page_bytes, bytes / 2, moved) || reserve(bytes, page_bytes, 0, moved);
  const std::size_t old_pages = pages_of(old);
  bool is_moved = false;
  if (is_reserved) {
    // All of it, also what the old pages will take the place of: os::move_pages() may look there.
    if (!os::commit(memory_of(moved), pages_of(moved))) {
      unreserve(moved);
    } else if (!os::move_pages(memory_of(old), memory_of(moved), old_pages)) {
      // Between the two there is nothing of ours any more.
      std::byte* const behind = memory_of(moved) + old_pages;
      os::unmap(reinterpret_cast<void*>(moved.reserved_begin), moved.begin - moved.reserved_begin);
      os::unmap(behind, moved.reserved_begin + moved.reserved_bytes - address_of(behind));
    } else {
      is_moved = true;
      std::memset(memory_of(moved) + old.bytes, 0, old_pages - old.bytes);
      write_tail(moved);
    }
  }
  {
    const Guard guard{lock_};
    if (!is_moved) {
      if (is_reserved) table_.break_promise();
      table_.find(old.begin)->state = LargeState::used;
      return nullptr;
    }
    table_.insert(moved);
    ++maps_;
  }
  put_away(old.begin);
  return memory_of(moved);
}

// ---- all of them ----

const std::byte* LargeBlocks::find_overflow() noexcept {
  const Guard guard{lock_};
  const std::byte* found = nullptr;
  table_.for_each([&](const LargeBlock& block) {
    if (block.state == LargeState::used && !is_tail_intact(block)) found = memory_of(block);
  });
  return found;
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

bool LargeBlocks::is_valid() noexcept {
  const Guard guard{lock_};
  if (!table_.is_valid()) return false;
  unsigned waiting = 0;
  std::size_t bytes = 0;
  for (unsigned i = 0; i < waiting_count_; ++i) {
    const LargeBlock* const block = table_.find(waiting_[i]);
    if (block == nullptr || block->state != LargeState::waiting) return false;
    bytes += block->reserved_bytes;
  }
  bool is_intact = true;
  table_.for_each([&](const LargeBlock& block) {
    waiting += block.state == LargeState::waiting ? 1 : 0;
    is_intact = is_intact && (block.state != LargeState::used || is_tail_intact(block));
  });
  return is_intact && waiting == waiting_count_ && bytes == waiting_bytes_;
}

// What a thread that is gone was taking away stays as it is: in no state that anybody uses again.
void LargeBlocks::fork_child() noexcept { lock_.reset_after_fork(); }

}  // namespace ts::secure
