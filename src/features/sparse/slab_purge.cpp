#include "features/sparse/slab_purge.h"

#include <algorithm>
#include <bit>

#include "core/block_set.h"
#include "core/hooks.h"
#include "core/slabs.h"
#include "core/sparse_slabs.h"
#include "features/hugepages/huge_pages.h"
#include "os/os.h"

namespace ts::engine {
namespace {

// A bit for each OS page of a slab.
using OsPages = std::uint64_t;
constexpr std::size_t min_os_page_bytes = 4096;
static_assert(max_slab_pages * (page_bytes / min_os_page_bytes) <= 64);

OsPages bits(std::size_t first, std::size_t count) noexcept {
  return count == 0 ? 0 : ~OsPages{0} >> (64 - count) << first;
}

// The OS pages of a slab, each at most as long as a page of the engine.
struct SlabPages {
  explicit SlabPages(Span& whole) noexcept
      : slab{whole},
        shift{static_cast<unsigned>(std::countr_zero(os::page_bytes()))},
        in_page{os_pages_in_page()} {}

  OsPages all() const noexcept { return bits(0, std::size_t{slab.pages} * in_page); }
  OsPages purged() const noexcept {
    OsPages pages = 0;
    for (std::size_t i = 0; i < slab.pages; ++i) pages |= OsPages{(&slab)[i].purged} << i * in_page;
    return pages;
  }
  void note_purged(OsPages pages) const noexcept {
    for (std::size_t i = 0; i < slab.pages; ++i)
      (&slab)[i].purged = static_cast<std::uint8_t>(pages >> i * in_page & bits(0, in_page));
  }
  OsPages of_bytes(std::size_t begin, std::size_t bytes) const noexcept {
    const std::size_t first = begin >> shift;
    return bits(first, ((begin + bytes - 1) >> shift) - first + 1);
  }
  std::size_t page_at(std::size_t offset) const noexcept { return offset >> shift; }

  Span& slab;
  unsigned shift;
  unsigned in_page;
};

// Visits the blocks by number, from the last to the first, with the offset of each.
template <class Visit>
void for_each_block(const Span& slab, Visit visit) noexcept {
  const std::size_t block_bytes = size_classes[slab.size_class].block_bytes;
  std::size_t offset = slab.slab_blocks * block_bytes;
  for (std::uint32_t number = slab.slab_blocks; number-- != 0;)
    visit(number, offset -= block_bytes);
}

// The blocks of the free list, and the OS pages that they overlap. False if the list is damaged, or
// longer than its count: a refill looks at that.
bool list_blocks(const SlabPages& pages, BlockSet& listed, OsPages& touched) noexcept {
  const Span& slab = pages.slab;
  const SizeClass& c = size_classes[slab.size_class];
  std::uint32_t count = 0;
  for (const Block* block = slab.free_list; block != nullptr; block = block->next) {
    const std::size_t offset = address_of(block) - address_of(memory_of(&slab));
    const std::uint32_t number = number_in_slab(c, offset % (max_slab_pages * page_bytes));
    if (offset >= slab.pages * page_bytes || number >= slab.carved ||
        number * std::size_t{c.block_bytes} != offset || listed.contains(number) ||
        !is_marked(block))
      return false;
    listed.add(number);
    touched |= pages.of_bytes(offset, c.block_bytes);
    ++count;
  }
  return count == slab.free_blocks;
}

// The OS pages that a block overlaps which is not free. Blocks that are not carved yet count, too:
// most of them were never touched.
OsPages pages_in_use(const SlabPages& pages, const BlockSet& listed, OsPages purged) noexcept {
  const std::size_t block_bytes = size_classes[pages.slab.size_class].block_bytes;
  OsPages in_use = 0;
  for_each_block(pages.slab, [&](std::uint32_t number, std::size_t offset) {
    const bool is_free = listed.contains(number) || (purged >> pages.page_at(offset) & 1) != 0;
    if (number >= pages.slab.carved || !is_free) in_use |= pages.of_bytes(offset, block_bytes);
  });
  return in_use;
}

bool has_block(const SlabPurge& purge, std::uint32_t number) noexcept {
  return (purge.blocks[number / 64] >> number % 64 & 1) != 0;
}

// Takes the blocks of `purge` off the list, which is made anew in the order of addresses, and from
// the purged ones. A signal handler may end this by longjmp, which loses blocks, but leaves none
// both listed and purged.
void take_out(Span& slab, const SlabPages& pages, const BlockSet& listed,
              const SlabPurge& purge) noexcept {
  slab.free_list = nullptr;
  std::atomic_signal_fence(std::memory_order_release);
  slab.free_blocks = 0;
  slab.purged_blocks = 0;
  std::atomic_signal_fence(std::memory_order_release);
  pages.note_purged(0);
  for_each_block(slab, [&](std::uint32_t number, std::size_t offset) {
    if (listed.contains(number) && !has_block(purge, number))
      push_free(slab, reinterpret_cast<Block*>(memory_of(&slab) + offset));
  });
}

}  // namespace

unsigned os_pages_in_page() noexcept {
  return static_cast<unsigned>(page_bytes / os::page_bytes());
}

void begin_purge(ThreadHeap& heap, Span& slab, SlabPurge& purge) noexcept {
  purge.slab = &slab;
  purge.to_purge = 0;
  if (os_pages_in_page() == 0) return;
  const SlabPages pages{slab};
  BlockSet listed{slab};
  OsPages touched = 0;  // perhaps, by blocks of the list: also purged ones that such reach into
  if (!list_blocks(pages, listed, touched)) return;
  purge.before = pages.purged();
  const OsPages in_use = pages_in_use(pages, listed, purge.before);
  const OsPages to_purge = pages.all() & ~in_use & ~(purge.before & ~touched);
  if (to_purge == 0) return;
  purge.purged = (purge.before & ~in_use) | to_purge;
  purge.count = 0;
  std::ranges::fill(purge.blocks, 0);
  const std::size_t block_bytes = size_classes[slab.size_class].block_bytes;
  for_each_block(slab, [&](std::uint32_t number, std::size_t offset) {
    if (number >= slab.carved) return;
    const bool overlaps = (pages.of_bytes(offset, block_bytes) & to_purge) != 0;
    const bool was_purged = (purge.before >> pages.page_at(offset) & 1) != 0;
    if (!was_purged && !(overlaps && listed.contains(number))) return;
    purge.blocks[number / 64] |= std::uint64_t{1} << number % 64;
    ++purge.count;
  });
  if (purge.count == 0) return;  // they would not keep the slab
  purge.to_purge = to_purge;
  refuse_huge_slab_pages();
  take_out(slab, pages, listed, purge);
  add_used(slab, purge.count);
  const bool has_blocks = slab.free_list != nullptr || slab.carved != slab.slab_blocks;
  if (is_listed(slab) && !has_blocks) unlink_partial(heap, slab);
}

OsPages discard(const SlabPurge& purge) noexcept {
  const SlabPages slab{*purge.slab};
  OsPages gone = 0;
  for (OsPages pages = purge.to_purge; pages != 0;) {  // each run of neighbours at once
    const auto first = static_cast<unsigned>(std::countr_zero(pages));
    const auto count = static_cast<unsigned>(std::countr_one(pages >> first));
    const std::size_t bytes = std::size_t{count} << slab.shift;
    if (!os::discard(memory_of(purge.slab) + (std::size_t{first} << slab.shift), bytes)) break;
    gone |= bits(first, count);
    pages &= ~bits(first, count);
  }
  count_given_back(static_cast<std::size_t>(std::popcount(gone & ~purge.before)) << slab.shift);
  return gone;
}

void end_purge(ThreadHeap& heap, const SlabPurge& purge, OsPages gone) noexcept {
  Span& slab = *purge.slab;
  const SlabPages pages{slab};
  const OsPages purged = purge.purged & ~(purge.to_purge & ~gone & ~purge.before);
  pages.note_purged(purged);
  for_each_block(slab, [&](std::uint32_t number, std::size_t offset) {
    if (!has_block(purge, number)) return;
    if ((purged >> pages.page_at(offset) & 1) != 0) {
      ++slab.purged_blocks;
    } else {
      push_free(slab, reinterpret_cast<Block*>(memory_of(&slab) + offset));
    }
  });
  sub_used(slab, purge.count);
  if (!is_listed(slab)) link_partial(heap, slab);
  if (slab.free_list == nullptr) move_behind_others(heap, slab);
}

// In the order of addresses, since lists change meanwhile.
// All free OS pages of all slabs that have free blocks.
void hooks::purge_slabs(ThreadHeap& heap) noexcept {
  const std::size_t page_count = page_map.page_count.load(std::memory_order_relaxed);
  for (std::size_t page = 0; page < page_count; ++page) {
    const PageMapEntry entry = page_map.pages[page].entry.load(std::memory_order_relaxed);
    if ((entry & ~class_mask) != entry_of_heap(heap)) continue;
    SlabPurge purge;
    {
      const HeapHold hold{heap};
      // Another thread may have reclaimed it.
      if (page_map.pages[page].entry.load(std::memory_order_relaxed) != entry) continue;
      Span& slab = page_map.spans[page];
      if (offset_in_slab(memory_of(&slab), page_map.pages[page]) != 0) continue;  // within one
      if (!is_listed(slab)) continue;
      begin_purge(heap, slab, purge);
    }
    if (purge.to_purge == 0) continue;
    const OsPages gone = discard(purge);
    const HeapHold hold{heap};
    end_purge(heap, purge, gone);
    relist_or_retire(heap, *purge.slab);
  }
}

void hooks::restore_blocks(ThreadHeap&, Span& slab) noexcept {
  const SizeClass& c = size_classes[slab.size_class];
  for (std::size_t i = 0; i < slab.pages; ++i) {
    Span& page = (&slab)[i];
    const std::uint8_t purged = page.purged;
    if (purged == 0) continue;
    // What the list has, page and count have no more: a signal handler may end this by longjmp.
    page.purged = 0;
    const std::uint32_t before = slab.free_blocks;
    const std::size_t first = (i * page_bytes + c.block_bytes - 1) / c.block_bytes;
    const std::size_t behind = ((i + 1) * page_bytes + c.block_bytes - 1) / c.block_bytes;
    for (std::size_t number = std::min<std::size_t>(behind, slab.carved); number-- > first;) {
      if (!begins_in(purged, number * c.block_bytes)) continue;
      if (slab.purged_blocks != 0) --slab.purged_blocks;
      push_free(slab, reinterpret_cast<Block*>(block_at(slab, number)));
    }
    if (slab.free_blocks != before) return;
  }
  slab.purged_blocks = 0;  // such a longjmp lost the others
}

}  // namespace ts::engine
