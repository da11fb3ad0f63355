#include "core/misuse.h"

#include "core/colours.h"
#include "core/hooks.h"
#include "core/page_heap.h"
#include "os/options.h"
#include "os/os.h"

namespace ts::engine {
namespace {

// Whether the memory belonged to blocks that are free now: it is in the page heap.
bool was_freed(const void* p) noexcept {
  const std::size_t page = page_of(p);
  bool is_free = false;
  page_heap.for_each([&](const Span& span) {
    const std::size_t first = first_page_of(&span);
    if (page < first || page >= first + span.pages) return;
    const PageMapEntry entry = page_map.pages[first].entry.load(std::memory_order_relaxed);
    is_free = span.state == SpanState::free || (span.state == SpanState::large && entry == 0);
  });
  return is_free;
}

Misuse kind_of_own(const void* p) noexcept {
  const PageMapEntry entry = entry_of(p);
  if (!is_of_slab(entry)) return was_freed(p) ? Misuse::double_free : Misuse::no_beginning;
  const BlockPlace place = place_of(p, size_class_of(entry));
  // Out of range if another thread changes the page's slab meanwhile.
  if (place.slab_page >= page_map.page_count.load(std::memory_order_relaxed))
    return Misuse::no_beginning;
  return kind_of_free(page_map.spans[place.slab_page], place);
}

// With two allocators in one process, every block of the other one may come here, and finding out
// where an address lies takes some microseconds. So only this many addresses are classified.
constexpr std::uint32_t most_looks = 1000;
constinit std::atomic<std::uint32_t> looks{0};  // relaxed: any thread may make the last one

Misuse kind_of_foreign(const void* p) noexcept {
  if (current_options.on_misuse == OnMisuse::silent ||
      looks.load(std::memory_order_relaxed) >= most_looks)
    return Misuse::foreign_pointer;
  looks.fetch_add(1, std::memory_order_relaxed);
  return os::may_be_allocated(p) ? Misuse::foreign_pointer : Misuse::no_pointer;
}

}  // namespace

bool is_free_without_key(const void* p) noexcept {
  return is_free(place_of(p, size_class_of(entry_of(p))));
}

bool is_in_use(const void* p) noexcept {
  const PageMapEntry entry = entry_of(p);
  if ((entry & large_entry) != 0) return is_large_block(p, page_map.spans[page_of(p)]);
  return entry != 0 && is_small_block(p, entry);
}

bool report_invalid_pointer(const void* p, FoundBy found_by) noexcept {
  if (found_by == FoundBy::free ? hooks::release_foreign(p) : hooks::foreign_bytes(p) != 0)
    return true;
  const bool is_ours = page_of(p) < page_map.page_count.load(std::memory_order_relaxed);
  const Misuse kind = is_ours ? kind_of_own(p) : kind_of_foreign(p);
  report_misuse(kind, found_by, p, size_class_of(entry_of(p)).block_bytes);
  return false;
}

}  // namespace ts::engine
