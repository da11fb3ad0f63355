// Resizing large blocks, in place or by moving their pages.
#include <cstring>

#include "os/bad_access.h"
#include "os/os.h"
#include "secure/checks.h"
#include "secure/large_blocks.h"
#include "secure/mappings.h"

namespace ts::secure {
namespace {

// Whether the block's addresses suffice for its size: within its part of a group, or with at least
// one inaccessible page left after it.
bool has_room(const LargeBlock& block) noexcept {
  const std::size_t behind = block.is_in_group ? 0 : page_bytes();
  return pages_of(block) + behind <= block.reserved_begin + block.reserved_bytes - block.begin;
}

// Clears the old tail and the contents beyond the new end on the pages that stay, and writes the
// new tail.
void change_end(const LargeBlock& old, const LargeBlock& resized) noexcept {
  const std::size_t now = pages_of(old);
  const std::size_t wanted = pages_of(resized);
  const std::size_t kept = resized.bytes < old.bytes ? resized.bytes : old.bytes;
  const std::size_t end = wanted < now ? wanted : now;
  if (kept < end) clear_bytes(memory_of(old) + kept, end - kept);
  write_tail(resized);
}

// Shrinks to fewer pages. False, with the block unchanged, if the rest cannot be made inaccessible.
bool shorten(const LargeBlock& old, LargeBlock& resized) noexcept {
  const std::size_t kept = pages_of(resized);
  std::byte* const behind = memory_of(old) + kept;
  if (!os::make_inaccessible(behind, pages_of(old) - kept)) return false;
  if (!os::protect(behind, pages_of(old) - kept)) resized.has_remains = true;
  change_end(old, resized);
  return true;
}

// Resizes within the part; pages beyond the old or new end are returned.
void resize_in_group(const LargeBlock& old, const LargeBlock& resized) noexcept {
  const std::size_t now = pages_of(old);
  const std::size_t wanted = pages_of(resized);
  const std::size_t first = now < wanted ? now : wanted;
  const std::size_t last = now < wanted ? wanted : now;
  if (first != last && !os::discard(memory_of(old) + first, last - first))
    make_zero(memory_of(old) + first, last - first);
  change_end(old, resized);
}

// Unmaps the inaccessible ranges around a block, but not its own `bytes`.
void unmap_around(const LargeBlock& block, std::size_t bytes) noexcept {
  std::byte* const behind = memory_of(block) + bytes;
  os::unmap_unused(reinterpret_cast<void*>(block.reserved_begin),
                   block.begin - block.reserved_begin);
  os::unmap_unused(behind, block.reserved_begin + block.reserved_bytes - address_of(behind));
}

}  // namespace

bool LargeBlocks::resize(const void* p, std::size_t bytes) noexcept {
  LargeBlock old;
  LargeBlock resized;
  {
    const Guard guard{lock_};
    Finding finding = Finding::sound;
    LargeBlock* const block = find_used(p, finding);
    if (finding != Finding::sound) return false;
    old = resized = *block;
    resized.bytes = bytes;
    const std::size_t now = pages_of(old);
    const std::size_t wanted = pages_of(resized);
    if (wanted < now || old.is_in_group) {
      if (bytes <= max_small_bytes || !has_room(resized)) return false;
      block->state = LargeState::leaving;
    } else {
      if (wanted > now && (!has_room(resized) || old.has_remains ||
                           !os::commit(memory_of(old) + now, wanted - now)))
        return false;
      change_end(old, resized);
      block->bytes = bytes;
      if constexpr (debug_level >= 2) check_slow_path(old.begin);
      return true;
    }
  }
  // Without the lock: other libraries may intercept the calls that return pages (os.h).
  bool fits = true;
  if (old.is_in_group) {
    resize_in_group(old, resized);
  } else {
    fits = shorten(old, resized);
  }
  const Guard guard{lock_};
  LargeBlock& block = *table_.find(old.begin);
  check(block.state == LargeState::leaving, "a block that is resized is leaving", &block);
  block.state = LargeState::used;
  if (fits) block = resized;
  if constexpr (debug_level >= 2) check_slow_path(old.begin);
  return fits;
}

std::byte* LargeBlocks::move(const void* p, std::size_t bytes) noexcept {
  LargeBlock old;
  // Excludes blocks that are large only because of their alignment.
  if (bytes <= max_small_bytes || !os::can_move_pages()) return nullptr;
  // Moved pages never merge with other mappings.
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
  // A block that grew once tends to grow again: reserve half its size more, if possible.
  const bool is_reserved =
      reserve(bytes, page_bytes(), bytes / 2, moved) || reserve(bytes, page_bytes(), 0, moved);
  const std::size_t old_pages = pages_of(old);
  bool is_moved = false;
  bool is_left = false;
  if (is_reserved) {
    // Commit all of it, including the place of the old pages: os::move_pages() may look there.
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
