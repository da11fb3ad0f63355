#include "secure/large_blocks.h"

#include "base/bits.h"
#include "os/os.h"
#include "secure/checks.h"
#include "secure/mappings.h"

namespace ts::secure {
namespace {

// The inaccessible range on either side has at least one page, and up to an eighth of the block.
constexpr std::size_t max_guard_pages = 64;

// Unmaps part of a range at its beginning or end; if the kernel refuses, the range stays longer.
void cut(LargeBlock& block, std::uintptr_t begin, std::uintptr_t end) noexcept {
  const std::uintptr_t reserved_end = block.reserved_begin + block.reserved_bytes;
  if (block.reserved_begin < begin &&
      os::unmap_unused(reinterpret_cast<void*>(block.reserved_begin), begin - block.reserved_begin))
    block.reserved_begin = begin;
  block.reserved_bytes = reserved_end - block.reserved_begin;
  if (end < reserved_end && os::unmap_unused(reinterpret_cast<void*>(end), reserved_end - end))
    block.reserved_bytes = end - block.reserved_begin;
}

}  // namespace

// Reserves addresses for a block, without memory, with `room` bytes after it, and a slot in the
// table.
bool LargeBlocks::reserve(std::size_t bytes, std::size_t alignment, std::size_t room,
                          LargeBlock& block) noexcept {
  const std::size_t pages = pages_for(bytes);
  const std::size_t spread = pages / page_bytes() / 8;
  std::size_t front = 1;
  std::size_t rear = 1;
  const std::size_t unaligned = alignment > page_bytes() ? alignment : 0;
  bool is_reused = false;
  block = {};
  {
    const Guard guard{lock_};
    if (!table_.promise_place()) return false;
    const auto most =
        static_cast<std::uint32_t>(spread >= max_guard_pages ? max_guard_pages : spread + 1);
    front += random_.below(most);
    rear += random_.below(most);
    front *= page_bytes();
    rear = rear * page_bytes() + align_up(room, page_bytes());
    is_reused = unaligned == 0 && take_idle(front + pages + rear, block);
    if (!is_reused) ++maps_;
    block.canary = make_canary(random_.next_64());
  }
  if (!is_reused) {
    block.reserved_bytes = front + pages + rear + unaligned;
    block.reserved_begin = address_of(reserve_elsewhere(block.reserved_bytes));
  }
  if (block.reserved_begin == 0) {
    const Guard guard{lock_};
    table_.break_promise();
    return false;
  }
  block.begin = align_up(block.reserved_begin + front, unaligned != 0 ? unaligned : page_bytes());
  block.bytes = bytes;
  if (unaligned != 0) cut(block, block.begin - front, block.begin + pages + rear);
  return true;
}

std::byte* LargeBlocks::allocate(std::size_t bytes, std::size_t alignment) noexcept {
  const bool is_short = roots.counts->mappings.are_short_for_blocks();
  std::byte* const alone = is_short ? nullptr : allocate_alone(bytes, alignment);
  // The kernel may run out of mappings before our count says so.
  return alone != nullptr ? alone : allocate_in_group(bytes, alignment);
}

std::byte* LargeBlocks::allocate_alone(std::size_t bytes, std::size_t alignment) noexcept {
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
  insert(block);
  if constexpr (debug_level >= 2) check_slow_path(block.begin);
  return memory_of(block);
}

void LargeBlocks::insert(const LargeBlock& block) noexcept {
  table_.insert(block);
  if (!block.is_in_group)
    roots.counts->mappings.guarded_blocks.fetch_add(1, std::memory_order_relaxed);
}

void LargeBlocks::erase(LargeBlock& block) noexcept {
  if (!block.is_in_group)
    roots.counts->mappings.guarded_blocks.fetch_sub(1, std::memory_order_relaxed);
  table_.erase(block);
}

// The block in use that begins there, even with a damaged canary; null if there is none.
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

Finding LargeBlocks::look_at(const void* p, std::size_t& bytes) noexcept {
  const Guard guard{lock_};
  Finding finding = Finding::sound;
  const LargeBlock* const block = find_used(p, finding);
  bytes = block != nullptr ? block->bytes : 0;
  return finding;
}

Finding LargeBlocks::release(const void* p, bool ignores_damage) noexcept {
  LargeBlock left;
  {
    const Guard guard{lock_};
    Finding finding = Finding::sound;
    LargeBlock* const block = find_used(p, finding);
    if (finding != Finding::sound && !(finding == Finding::overflow && ignores_damage))
      return finding;
    block->state = LargeState::leaving;
    left = *block;
  }
  put_away(left);
  return Finding::sound;
}

// A block that was leaving at the time of the fork stays in that state forever.
void LargeBlocks::fork_child() noexcept { lock_.reset_after_fork(); }

}  // namespace ts::secure
