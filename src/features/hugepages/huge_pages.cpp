#include "features/hugepages/huge_pages.h"

#include <atomic>

#include "core/hooks.h"
#include "core/page_map.h"
#include "os/options.h"
#include "os/os.h"

namespace ts::engine {
namespace {

// relaxed: a thread that reads it late leaves a hint in place, which costs memory at worst
constinit std::atomic<bool> were_asked_for{false};
// relaxed: likewise; set under the lock of the page heap
constinit std::atomic<bool> slabs_asked{false};

// relaxed: a thread that reads it late asks once more
constinit std::atomic<bool> is_memory_short{false};

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

// Asks, or refuses, as TSMALLOC_THP says; `auto` asks where dense slabs are likely to fill it.
// Another value holds for later memory, and `never` for all so far, too (follow_options).
void hooks::fresh_memory(void* begin, std::size_t bytes, bool is_dense) noexcept {
  switch (current_options.huge_pages) {
    case HugePages::never:
      return refuse_huge_pages(begin, bytes);
    case HugePages::always:
      return ask_for_huge_pages(begin, bytes);
    case HugePages::automatic:
      break;
  }
  if (!is_dense) return;
  slabs_asked.store(true, std::memory_order_relaxed);
  ask_for_huge_pages(begin, bytes);
}

void refuse_huge_slab_pages() noexcept {
  if (!slabs_asked.load(std::memory_order_relaxed)) return;
  slabs_asked.store(false, std::memory_order_relaxed);
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
