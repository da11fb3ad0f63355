#include "core/span_cache.h"

#include "core/page_heap.h"

namespace ts::engine {

void flush_span_cache(ThreadHeap& heap) noexcept {
  for (SpanCache& cache : heap.span_caches) {
    while (Span* const span = cache.head) {
      cache.head = span->next;
      page_heap.release(span);
    }
    cache.count = 0;
  }
}

}  // namespace ts::engine
