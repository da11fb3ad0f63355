// Access to a page heap's internals: to break it on purpose, and to read its bounds.
#pragma once

#include "core/page_heap.h"

namespace ts::engine {

struct FreeSpansTest {
  static std::uint64_t& occupied(FreeSpans& spans, unsigned word) { return spans.occupied_[word]; }
  static std::size_t& pages(FreeSpans& spans) { return spans.pages_; }
};

struct PageHeapTest {
  static FreeSpans& dirty() { return page_heap.dirty_; }
  static FreeSpans& clean() { return page_heap.clean_; }
  static std::size_t& top() { return page_heap.top_; }
  static std::size_t& committed() { return page_heap.committed_; }
};

}  // namespace ts::engine
