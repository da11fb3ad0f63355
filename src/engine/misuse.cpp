#include "engine/misuse.h"

#include "engine/page_heap.h"
#include "engine/sampled_guard.h"
#include "os/options.h"

namespace ts::engine {
namespace {

// Whether the memory was of blocks that are free by now: in the page heap, or in a span cache.
bool was_freed(const void* p) noexcept {
  const std::size_t page = page_of(p);
  bool is_free = false;
  page_heap.for_each([&](const Span& span) {
    const std::size_t first = first_page_of(&span);
    if (page < first || page >= first + span.pages) return;
    const PageMapEntry entry = page_map.entries[first].load(std::memory_order_relaxed);
    is_free = span.state == SpanState::free || (span.state == SpanState::large && entry == 0);
  });
  return is_free;
}

}  // namespace

bool begins_block(const void* p) noexcept {
  const PageMapEntry entry = entry_of(p);
  if ((entry & large_entry) != 0) return address_of(p) % page_bytes == 0;
  return entry != 0 && place_of(p, size_class_of(entry)).is_beginning;
}

bool report_stray(const void* p, FoundBy found_by) noexcept {
  if (current_options.guard_sample != 0) {
    if (found_by == FoundBy::free ? release_guarded(p) : guarded_bytes(p) != 0) return true;
  }
  const bool is_ours = page_of(p) < page_map.page_count.load(std::memory_order_relaxed);
  const Misuse kind = !is_ours       ? Misuse::foreign_pointer
                      : was_freed(p) ? Misuse::double_free
                                     : Misuse::no_beginning;
  report_misuse(kind, found_by, p, size_class_of(entry_of(p)).block_bytes);
  return false;
}

void report_double_free(const void* p) noexcept {
  report_misuse(Misuse::double_free, FoundBy::free, p, size_class_of(entry_of(p)).block_bytes);
}

}  // namespace ts::engine
