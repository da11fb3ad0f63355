// Large blocks of another size: in place, or by moving their pages.
#include <cstring>

#include "os/bad_access.h"
#include "os/os.h"
#include "secure/checks.h"
#include "secure/large_blocks.h"
#include "secure/mappings.h"

namespace ts::secure {

bool LargeBlocks::resize(const void* p, std::size_t bytes) noexcept {
  const Guard guard{lock_};
  Finding finding = Finding::sound;
  LargeBlock* const block = find_used(p, finding);
  if (finding != Finding::sound) return false;
  if (block->is_in_group) return resize_in_group(*block, bytes);
  const std::size_t now = pages_of(*block);
  const std::size_t wanted = pages_for(bytes);
  if (wanted > now) {
    // At least a page stays inaccessible.
    const std::size_t behind =
        block->reserved_begin + block->reserved_bytes - block->begin - now - page_bytes();
    if (wanted - now > behind || !os::commit(memory_of(*block) + now, wanted - now)) return false;
  }
  if (wanted < now &&
      (bytes <= max_small_bytes || !os::withdraw(memory_of(*block) + wanted, now - wanted)))
    return false;
  // Neither the old tail nor contents behind the new end are left.
  const std::size_t kept = bytes < block->bytes ? bytes : block->bytes;
  const std::size_t end = wanted < now ? wanted : now;
  if (kept < end) std::memset(memory_of(*block) + kept, 0, end - kept);
  block->bytes = bytes;
  write_tail(*block);
  if constexpr (debug_level >= 2) check_slow_path(block->begin);
  return true;
}

namespace {

// Gives back what is inaccessible around a block, whose own `bytes` must not be touched.
void unmap_around(const LargeBlock& block, std::size_t bytes) noexcept {
  std::byte* const behind = memory_of(block) + bytes;
  os::unmap(reinterpret_cast<void*>(block.reserved_begin), block.begin - block.reserved_begin);
  os::unmap(behind, block.reserved_begin + block.reserved_bytes - address_of(behind));
}

}  // namespace

std::byte* LargeBlocks::move(const void* p, std::size_t bytes) noexcept {
  LargeBlock old;
  // Not a block that is large for its alignment only.
  if (bytes <= max_small_bytes || !os::can_move_pages()) return nullptr;
  // Pages that have moved are never one mapping with others.
  if (roots.counts->mappings.are_short()) return nullptr;
  {
    const Guard guard{lock_};
    Finding finding = Finding::sound;
    LargeBlock* const block = find_used(p, finding);
    if (block == nullptr || bytes <= block->bytes || block->is_in_group) return nullptr;
    block->state = LargeState::leaving;
    old = *block;
  }
  LargeBlock moved;
  // A block that grew once tends to grow again: half as many addresses again, if there are so many.
  const bool is_reserved =
      reserve(bytes, page_bytes(), bytes / 2, moved) || reserve(bytes, page_bytes(), 0, moved);
  const std::size_t old_pages = pages_of(old);
  bool is_moved = false;
  bool is_left = false;
  if (is_reserved) {
    // All of it, also the place of the old pages: os::move_pages() may look there.
    const std::size_t pages = pages_of(moved);
    if (!os::commit(memory_of(moved), pages)) {
      unreserve(moved);
    } else if (!os::move_pages(memory_of(old), old_pages, memory_of(moved), pages, is_left)) {
      if (is_left) {
        unreserve(moved);
      } else {
        unmap_around(moved, pages);
      }
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
    insert(moved);
    if (!is_left) erase(*table_.find(old.begin));
    if constexpr (debug_level >= 2) check_slow_path(moved.begin);
  }
  is_left ? put_away(old) : unmap_around(old, old_pages);
  return memory_of(moved);
}

}  // namespace ts::secure
