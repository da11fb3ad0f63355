// Free spans of the shortest lengths of large blocks that a heap keeps, where the lock of the page
// heap would cost most. The fewer heaps there are, the more each may keep; all together, 7 MiB.
#pragma once

#include <algorithm>

#include "core/current_heap.h"
#include "core/page_map.h"

namespace ts::engine {

inline std::uint32_t span_cache_capacity() noexcept {
  const std::uint32_t heaps = page_map.heap_count.load(std::memory_order_relaxed);
  constexpr std::uint32_t most = 4;
  constexpr std::uint32_t of_all_heaps = 64;
  return heaps <= of_all_heaps / most ? most : of_all_heaps / heaps;
}

// The calling thread's cache of spans of the length; null if there is none.
inline SpanCache* span_cache_for(std::size_t pages) noexcept {
  const std::size_t index = pages - min_cached_pages;
  return index < cached_lengths && has_heap() ? &own_heap().span_caches[index] : nullptr;
}

// A cached span of the length from the calling thread's heap; null if there is none.
inline Span* take_from_span_cache(std::size_t pages) noexcept {
  SpanCache* const cache = span_cache_for(pages);
  if (cache == nullptr || cache->head == nullptr) return nullptr;
  Span* const span = cache->head;
  cache->head = span->next;
  --cache->count;
  return span;
}

// Puts a free span into the calling thread's cache; false if there is no room for it.
inline bool put_into_span_cache(Span& span) noexcept {
  SpanCache* const cache = span_cache_for(span.pages);
  if (cache == nullptr || cache->count >= span_cache_capacity()) return false;
  span.next = cache->head;
  // release: as push_front()
  store_release(cache->head, &span);
  ++cache->count;
  return true;
}

// Gives the heap's cached spans to the page heap.
void flush_span_cache(ThreadHeap& heap) noexcept;

}  // namespace ts::engine
