#include "features/sparse/slab_purge.h"

#include <algorithm>
#include <bit>

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

// Visits the blocks, from the last to the first, with the offset of each.
template <class Visit>
void for_each_block(const Span& slab, Visit visit) noexcept {
  const std::size_t block_bytes = size_classes[slab.size_class].block_bytes;
  std::size_t offset = slab.slab_blocks * block_bytes;
  for (std::uint32_t number = slab.slab_blocks; number-- != 0;)
    visit(number, offset -= block_bytes);
}

bool is_free_in(const SlabPages& pages, std::uint32_t number) noexcept {
  return number < pages.slab.carved && is_free(first_page_of(&pages.slab), number);
}

// The OS pages overlapped by blocks that are not free. Includes blocks that were never taken, most
// of which were never touched.
OsPages pages_in_use(const SlabPages& pages) noexcept {
  const std::size_t block_bytes = size_classes[pages.slab.size_class].block_bytes;
  OsPages in_use = 0;
  for_each_block(pages.slab, [&](std::uint32_t number, std::size_t offset) {
    if (!is_free_in(pages, number)) in_use |= pages.of_bytes(offset, block_bytes);
  });
  return in_use;
}

// The OS pages overlapped by free blocks that do not begin in one of `purged`. Such blocks may have
// been in use since the last purge.
OsPages touched_pages(const SlabPages& pages, OsPages purged) noexcept {
  const std::size_t block_bytes = size_classes[pages.slab.size_class].block_bytes;
  OsPages touched = 0;
  for_each_block(pages.slab, [&](std::uint32_t number, std::size_t offset) {
    if (is_free_in(pages, number) && (purged >> pages.page_at(offset) & 1) == 0)
      touched |= pages.of_bytes(offset, block_bytes);
  });
  return touched;
}

bool has_block(const SlabPurge& purge, std::uint32_t number) noexcept {
  return (purge.blocks[number / 64] >> number % 64 & 1) != 0;
}

// Makes the blocks of `purge` count as used, and none as purged. A signal handler may end this by
// longjmp, which loses blocks.
void take_out(Span& slab, const SlabPages& pages, const SlabPurge& purge) noexcept {
  for (std::size_t i = 0; i < words_of(slab); ++i)
    free_word_of(slab, i).store(free_word(slab, i) & ~purge.blocks[i], std::memory_order_relaxed);
  slab.purged_blocks = 0;
  pages.note_purged(0);
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
  purge.before = pages.purged();
  const OsPages in_use = pages_in_use(pages);
  const OsPages touched = touched_pages(pages, purge.before);
  const OsPages to_purge = pages.all() & ~in_use & ~(purge.before & ~touched);
  if (to_purge == 0) return;
  purge.purged = (purge.before & ~in_use) | to_purge;
  purge.count = 0;
  std::ranges::fill(purge.blocks, 0);
  const std::size_t block_bytes = size_classes[slab.size_class].block_bytes;
  for_each_block(slab, [&](std::uint32_t number, std::size_t offset) {
    if (!is_free_in(pages, number)) return;
    const bool overlaps = (pages.of_bytes(offset, block_bytes) & to_purge) != 0;
    const bool was_purged = (purge.before >> pages.page_at(offset) & 1) != 0;
    if (!was_purged && !overlaps) return;
    purge.blocks[number / 64] |= std::uint64_t{1} << number % 64;
    ++purge.count;
  });
  if (purge.count == 0) return;  // these blocks would not keep the slab
  purge.to_purge = to_purge;
  refuse_huge_slab_pages();
  take_out(slab, pages, purge);
  add_used(slab, purge.count);
  if (is_listed(slab) && !has_free_block(slab)) unlink_partial(heap, slab);
}

OsPages discard(const SlabPurge& purge) noexcept {
  const SlabPages slab{*purge.slab};
  OsPages gone = 0;
  for (OsPages pages = purge.to_purge; pages != 0;) {  // purges runs of adjacent pages
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
    if (has_block(purge, number) && (purged >> pages.page_at(offset) & 1) != 0)
      ++slab.purged_blocks;
  });
  for (std::size_t i = 0; i < words_of(slab); ++i)
    free_word_of(slab, i).store(free_word(slab, i) | purge.blocks[i], std::memory_order_relaxed);
  set_keyless(slab, true);
  sub_used(slab, purge.count);
  if (!is_listed(slab)) link_partial(heap, slab);
  if (count_free_blocks(slab) == slab.purged_blocks) move_to_end(heap, slab);
}

// Purges all free OS pages of all slabs that have free blocks. In address order, since lists change
// meanwhile.
void hooks::purge_slabs(ThreadHeap& heap) noexcept {
  const std::size_t page_count = page_map.page_count.load(std::memory_order_relaxed);
  for (std::size_t page = 0; page < page_count; ++page) {
    const PageMapEntry entry = page_map.pages[page].entry.load(std::memory_order_relaxed);
    if ((entry & ~(class_mask | keyless_bit)) != entry_of_heap(heap)) continue;
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
  for (std::size_t i = 0; i < slab.pages && slab.purged_blocks != 0; ++i) {
    Span& page = (&slab)[i];
    const std::uint8_t purged = page.purged;
    if (purged == 0) continue;
    page.purged = 0;
    const std::uint32_t before = slab.purged_blocks;
    const std::size_t first = (i * page_bytes + c.block_bytes - 1) / c.block_bytes;
    const std::size_t behind = ((i + 1) * page_bytes + c.block_bytes - 1) / c.block_bytes;
    for (std::size_t number = first; number < std::min<std::size_t>(behind, slab.carved);
         ++number) {
      if (begins_in(purged, number * c.block_bytes) && slab.purged_blocks != 0)
        --slab.purged_blocks;
    }
    if (slab.purged_blocks != before) return;
  }
  slab.purged_blocks = 0;  // a longjmp out of a purge lost the others
}

}  // namespace ts::engine
