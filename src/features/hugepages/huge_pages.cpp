#include "features/hugepages/huge_pages.h"

#include <algorithm>
#include <atomic>

#include "base/atomic.h"
#include "core/hooks.h"
#include "core/page_map.h"
#include "os/options.h"
#include "os/os.h"

namespace ts::engine {
namespace {

// relaxed: a thread that reads it late leaves a hint in place, which at worst costs memory
constinit std::atomic<bool> were_asked_for{false};
// relaxed: likewise; set under the lock of the page heap
constinit std::atomic<bool> growth_asked{false};

// relaxed: a thread that reads it late makes one more request
constinit std::atomic<bool> is_memory_short{false};

// The page heap grows in steps of a huge page. A step gets a huge page if an earlier step, with
// small pages, is full of small blocks. Such a step decides for a run of further ones; each run is
// longer than the last, up to this length. Then the next step is checked.
constexpr std::uint32_t first_run = 3;
constexpr std::uint32_t longest_run = 7;
// The first steps have small pages: for a small process, the unused part of a huge page is a lot.
constexpr std::size_t first_huge_step = 2;

// Guarded by the lock of the page heap, which grows.
struct Growth {
  Plain<std::byte*> small_steps[2] = {};  // latest steps that have not decided for a run yet
  Plain<std::uint32_t> left_of_run = 0;
  Plain<std::uint32_t> next_run = first_run;
};
constinit Growth growth;

// Whether blocks in use make up three quarters of it. Counts only slabs of one page, and thus
// blocks of up to about 4 KiB: programs often touch only a part of larger blocks. A racy read.
bool is_step_full(const std::byte* step) noexcept {
  const std::size_t first = page_of(step);
  std::size_t bytes = 0;
  for (std::size_t page = first; page < first + pages_per_huge_page; ++page) {
    const PageMapEntry entry = page_map.pages[page].entry.load(std::memory_order_relaxed);
    if (!is_of_slab(entry)) continue;
    const SizeClass& c = size_class_of(entry);
    if (c.slab_pages == 1) bytes += std::size_t{used(page_map.spans[page])} * c.block_bytes;
  }
  return bytes >= huge_page_bytes / 4 * 3;
}

// Slabs of a step are filled some time after they were cut from it, so the step before counts, too.
bool is_promising(std::byte* step) noexcept {
  if (growth.left_of_run != 0) {
    --growth.left_of_run;
    return true;
  }
  auto& [last, last_but_one] = growth.small_steps;
  const auto is_evidence = [](const std::byte* small) {
    return small != nullptr && is_step_full(small);
  };
  const bool is_first = address_of(step) - page_map.base < first_huge_step * huge_page_bytes;
  if (!is_first && (is_evidence(last) || is_evidence(last_but_one))) {
    last = last_but_one = nullptr;
    growth.left_of_run = growth.next_run - 1;
    growth.next_run = std::min(2 * growth.next_run, longest_run);
    return true;
  }
  if (last_but_one != nullptr) growth.next_run = first_run;
  last_but_one = last;
  last = step;
  return false;
}

}  // namespace

void ask_for_huge_pages(void* begin, std::size_t bytes) noexcept {
  if (is_memory_short.load(std::memory_order_relaxed)) return;
  were_asked_for.store(true, std::memory_order_relaxed);
  os::prefer_huge_pages(begin, bytes);
}

void note_memory(bool is_short) noexcept {
  is_memory_short.store(is_short, std::memory_order_relaxed);
}

void refuse_huge_pages(void* begin, std::size_t bytes) noexcept {
  os::refuse_huge_pages(begin, bytes);
}

// Requests or refuses huge pages, as TSMALLOC_THP says; `auto` requests them where small blocks are
// likely to fill them. Longer growth is for a large block (huge_page_probe.cpp). A changed option
// applies to later memory; `never` also to existing memory (follow_options).
void hooks::fresh_memory(std::byte* begin, std::size_t bytes, bool grows) noexcept {
  switch (current_options.huge_pages) {
    case HugePages::never:
      return refuse_huge_pages(begin, bytes);
    case HugePages::always:
      return ask_for_huge_pages(begin, bytes);
    case HugePages::automatic:
      break;
  }
  const bool is_step = bytes == huge_page_bytes && address_of(begin) % huge_page_bytes == 0;
  if (!grows || !is_step || !is_promising(begin)) return;
  growth_asked.store(true, std::memory_order_relaxed);
  ask_for_huge_pages(begin, bytes);
}

void refuse_huge_slab_pages() noexcept {
  if (!growth_asked.load(std::memory_order_relaxed)) return;
  growth_asked.store(false, std::memory_order_relaxed);
  refuse_all_huge_pages();
}

void refuse_all_huge_pages() noexcept {
  const std::size_t pages = page_map.page_count.load(std::memory_order_relaxed);
  refuse_huge_pages(memory_of(page_map.spans), pages * page_bytes);
}

void refuse_inherited_huge_pages(void* begin, std::size_t bytes) noexcept {
  if (were_asked_for.load(std::memory_order_relaxed)) refuse_huge_pages(begin, bytes);
}

}  // namespace ts::engine
