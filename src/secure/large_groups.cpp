// Large blocks when mappings are short: parts of a group, which is one mapping between two
// inaccessible pages, however many blocks it has. All parts of a group have the same length; there
// are four lengths per octave. A freed part has no memory but stays accessible, so a use after free
// is not detected; whatever it wrote is gone when the part is reused. Each block has the same tail
// as other large blocks.
#include <bit>

#include "base/bits.h"
#include "os/os.h"
#include "secure/checks.h"
#include "secure/large_blocks.h"
#include "secure/mappings.h"

namespace ts::secure {
namespace {

// Each new group has as many parts as all before it, so that few groups hold any number of blocks.
constexpr std::size_t min_parts = 16;

}  // namespace

// The first group whose parts are long enough.
unsigned LargeBlocks::group_of(std::size_t bytes) noexcept {
  if (bytes <= std::size_t{1} << first_group_width) return 0;
  const auto width = static_cast<unsigned>(std::bit_width(bytes - 1)) - 1;
  const auto step = static_cast<unsigned>((bytes - 1) >> (width - 2)) - 4;
  return (width - first_group_width) * 4 + step + 1;
}

std::size_t LargeBlocks::part_bytes(unsigned group) noexcept {
  const std::size_t bytes = std::size_t{4 + group % 4} << (first_group_width - 2 + group / 4);
  return align_up(bytes, page_bytes());
}

// Reserves addresses for more parts of a length; false if the kernel refuses.
bool LargeBlocks::add_group(unsigned group) noexcept {
  Group& g = groups_[group];
  const std::size_t each = part_bytes(group);
  for (std::size_t parts = g.parts < min_parts ? min_parts : g.parts; parts != 0; parts /= 2) {
    if (parts > address_limit / each) continue;
    const std::size_t bytes = parts * each + 2 * page_bytes();
    void* const begin = reserve_elsewhere(bytes);
    if (begin == nullptr) continue;
    // A huge page would give memory to many blocks when one is touched.
    os::refuse_huge_pages(begin, bytes);
    ++maps_;
    g.next = address_of(begin) + page_bytes();
    g.end = g.next + parts * each;
    g.parts += parts;
    return true;
  }
  return false;
}

// Unmaps a group that has no block yet.
void LargeBlocks::drop_group(unsigned group) noexcept {
  Group& g = groups_[group];
  const std::size_t bytes = g.end - g.next;
  // If the kernel refuses, the group is used later.
  if (!os::unmap_unused(reinterpret_cast<void*>(g.next - page_bytes()), bytes + 2 * page_bytes()))
    return;
  g.parts -= bytes / part_bytes(group);
  g.next = g.end = 0;
}

bool LargeBlocks::take_part(unsigned group, LargeBlock& block, bool& is_fresh) noexcept {
  Group& g = groups_[group];
  is_fresh = g.free == 0;
  if (!is_fresh) {
    LargeBlock& found = *table_.find(g.free);
    check(found.state == LargeState::grouped, "a free part of a group has no block", &found);
    g.free = found.bytes;
    block.reserved_begin = found.reserved_begin;
    block.reserved_bytes = found.reserved_bytes;
    erase(found);
    return true;
  }
  const bool is_new = g.next == g.end;
  if (is_new && !add_group(group)) return false;
  // Parts are committed in address order, so that the accessible range stays one mapping.
  const std::size_t bytes = part_bytes(group);
  if (!os::commit(reinterpret_cast<void*>(g.next), bytes)) {
    if (is_new) drop_group(group);
    return false;
  }
  block.reserved_begin = g.next;
  block.reserved_bytes = bytes;
  g.next += bytes;
  return true;
}

std::byte* LargeBlocks::allocate_in_group(std::size_t bytes, std::size_t alignment) noexcept {
  const std::size_t aligned = alignment > page_bytes() ? alignment : 0;
  const unsigned group = group_of(pages_for(bytes + canary_bytes) + aligned);
  if (group >= group_lengths) return nullptr;
  LargeBlock block{};
  bool is_fresh = false;
  {
    const Guard guard{lock_};
    if (!table_.promise_place()) return nullptr;
    if (!take_part(group, block, is_fresh)) {
      table_.break_promise();
      return nullptr;
    }
    block.canary = make_canary(random_.next_64());
  }
  block.is_in_group = true;
  block.begin = aligned != 0 ? align_up(block.reserved_begin, aligned) : block.reserved_begin;
  block.bytes = bytes;
  // Removes what was written after the last free.
  if (!is_fresh && !os::discard(memory_of(block), pages_of(block)))
    make_zero(memory_of(block), pages_of(block));
  write_tail(block);
  const Guard guard{lock_};
  insert(block);
  if constexpr (debug_level >= 2) check_slow_path(block.begin);
  return memory_of(block);
}

Fault LargeBlocks::find_group_fault() noexcept {
  std::size_t free = 0;
  std::size_t listed = 0;
  table_.for_each(
      [&](const LargeBlock& block) { free += block.state == LargeState::grouped ? 1 : 0; });
  for (unsigned group = 0; group < group_lengths; ++group) {
    for (std::uintptr_t at = groups_[group].free; at != 0 && listed <= free; ++listed) {
      const LargeBlock* const block = table_.find(at);
      if (block == nullptr || block->state != LargeState::grouped ||
          block->reserved_bytes != part_bytes(group))
        return {"a listed part of a group is free, and of that length", block};
      at = block->bytes;
    }
  }
  if (listed != free) return {"each free part of a group is listed once", this};
  return {};
}

}  // namespace ts::secure
