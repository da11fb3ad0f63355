#include "engine/slab_purge.h"

#include <algorithm>
#include <bit>

#include "engine/block_set.h"
#include "engine/huge_pages.h"
#include "engine/slabs.h"
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

// Gives the pages back, each run of neighbours at once. Returns those that the system took.
OsPages discard(const SlabPages& slab, OsPages pages) noexcept {
  OsPages gone = 0;
  while (pages != 0) {
    const auto first = static_cast<unsigned>(std::countr_zero(pages));
    const auto count = static_cast<unsigned>(std::countr_one(pages >> first));
    const std::size_t bytes = std::size_t{count} << slab.shift;
    if (!os::discard(memory_of(&slab.slab) + (std::size_t{first} << slab.shift), bytes)) break;
    gone |= bits(first, count);
    pages &= ~bits(first, count);
  }
  return gone;
}

// Makes the free list anew, in the order of addresses, of the free blocks that begin in no purged
// page: those of the list, and others that were purged `before`. `purged` are the purged pages from
// now on. They are noted while the list is empty: a signal handler may end this by longjmp, which
// loses blocks, but leaves none both listed and purged.
void relink(Span& slab, const SlabPages& pages, const BlockSet& listed, OsPages before,
            OsPages purged) noexcept {
  slab.free_list = nullptr;
  std::atomic_signal_fence(std::memory_order_release);
  slab.free_blocks = 0;
  slab.purged_blocks = 0;
  std::atomic_signal_fence(std::memory_order_release);
  pages.note_purged(purged);
  std::uint16_t purged_blocks = 0;
  for_each_block(slab, [&](std::uint32_t number, std::size_t offset) {
    const std::size_t page = pages.page_at(offset);
    if (number >= slab.carved || (!listed.contains(number) && (before >> page & 1) == 0)) return;
    if ((purged >> page & 1) != 0) {
      ++purged_blocks;
    } else {
      push_free(slab, reinterpret_cast<Block*>(memory_of(&slab) + offset));
    }
  });
  slab.purged_blocks = purged_blocks;
}

// Whether the offset lies in one of the OS pages of its page.
bool begins_in(std::uint8_t os_pages, std::size_t offset) noexcept {
  return (os_pages >> offset % page_bytes / os::page_bytes() & 1) != 0;
}

}  // namespace

unsigned os_pages_in_page() noexcept {
  return static_cast<unsigned>(page_bytes / os::page_bytes());
}

bool is_purged(const Span& slab, std::uint32_t number) noexcept {
  const std::size_t offset = std::size_t{number} * size_classes[slab.size_class].block_bytes;
  const std::uint8_t purged = (&slab)[offset / page_bytes].purged;
  return purged != 0 && begins_in(purged, offset);
}

void purge_slab(ThreadHeap& heap, Span& slab) noexcept {
  if (os_pages_in_page() == 0) return;
  const SlabPages pages{slab};
  BlockSet listed{slab};
  OsPages touched = 0;  // perhaps, by blocks of the list: also purged ones that such reach into
  if (!list_blocks(pages, listed, touched)) return;
  const OsPages before = pages.purged();
  const OsPages in_use = pages_in_use(pages, listed, before);
  const OsPages to_purge = pages.all() & ~in_use & ~(before & ~touched);
  if (to_purge == 0) return;
  refuse_huge_slab_pages();
  // The list does without the pages before they go.
  const OsPages purged = (before & ~in_use) | to_purge;
  relink(slab, pages, listed, before, purged);
  const OsPages gone = discard(pages, to_purge);
  count_given_back(static_cast<std::size_t>(std::popcount(gone & ~before)) << pages.shift);
  if (const OsPages refused = to_purge & ~gone; refused != 0)
    relink(slab, pages, listed, before, purged & ~(refused & ~before));
  if (slab.free_list == nullptr && is_listed(slab)) move_behind_others(heap, slab);
}

void purge_slabs(ThreadHeap& heap) noexcept {
  for (Span* const head : heap.partial) {
    for (Span* slab = head; slab != nullptr;) {
      Span* const next = slab->next;  // a purged slab may move to the end, where nothing is left
      purge_slab(heap, *slab);
      slab = next;
    }
  }
}

void restore_blocks(ThreadHeap&, Span& slab) noexcept {
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
