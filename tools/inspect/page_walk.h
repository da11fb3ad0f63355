// Walks over the spans of an engine in another process, by its page map. That is a ninth of the
// size of the spans' descriptors, which are read only when needed.
#pragma once

#include <algorithm>

#include "inspect/engine_image.h"

namespace ts {

// A table that has an element for each page, read piece by piece. Callers usually need a few
// scattered elements, or all in order. So a piece is as long as an OS page, and one that begins near
// the end of the previous one is twice as long.
template <class Element, Element* engine::PageMap::*table>
class TableWindow {
 public:
  TableWindow(const Process& process, const EngineImage& image)
      : process_{process}, image_{image} {}

  // This many from the page's own on; null if there are not so many pages, or memory is unreadable.
  const Element* at(std::size_t page, std::size_t count) {
    const bool is_known = page >= first_ && page + count <= end_;
    return is_known || read(page, count) ? &elements_[page - first_] : nullptr;
  }

 private:
  bool read(std::size_t page, std::size_t count) {
    const std::size_t pages = image_.page_count();
    if (count > pages || page > pages - count) return false;
    const bool is_sequential = page >= first_ && page <= end_ + length_;
    length_ = is_sequential ? std::min(2 * length_, maximum) : minimum;
    first_ = page;
    end_ = pages - page < length_ ? pages : page + length_;
    if (elements_.read(process_, address_in(image_.map().*table, first_), end_ - first_))
      return true;
    end_ = first_;
    return false;
  }

  static constexpr std::size_t minimum = 4096 / sizeof(Element);
  static constexpr std::size_t maximum = 2048;
  static_assert(minimum >= engine::max_slab_pages);

  const Process& process_;
  const EngineImage& image_;
  const Copy<Element> elements_{maximum};
  std::size_t first_ = 0;
  std::size_t end_ = 0;
  std::size_t length_ = minimum;
};
using SpanWindow = TableWindow<engine::Span, &engine::PageMap::spans>;
using UseWindow = TableWindow<engine::SlabUse, &engine::PageMap::uses>;

// All pages of a slab have the same beginning and the same entry except for keyless_bit, which may
// be changing; `map` has at least `known` of them.
inline std::size_t pages_of_slab(const engine::MapPage* map, std::size_t known) {
  const auto entry_of = [map](std::size_t i) {
    return map[i].entry.load(std::memory_order_relaxed) & ~engine::keyless_bit;
  };
  std::size_t pages = 1;
  while (pages < std::min(known, engine::max_slab_pages) && entry_of(pages) == entry_of(0) &&
         map[pages].slab_begin == map->slab_begin)
    ++pages;
  return pages;
}

// Calls, for each span in turn, one of
//   bool visitor.visit_slab(page, pages, entry)      false if memory is unreadable
//   void visitor.visit_large(page, pages, usable_pages)
//   void visitor.visit_other(page, const Span&)      free, or in a span cache
// The numbers come from the page map, and are in bounds; a slab's class has blocks. Pages that
// changed owner while they were read are skipped, and counted in `unclear`. False if memory is
// unreadable.
template <class Visitor>
class PageWalk {
 public:
  PageWalk(const Process& process, const EngineImage& image, SpanWindow& spans,
           std::size_t& unclear, Visitor& visitor)
      : process_{process}, image_{image}, spans_{spans}, unclear_{unclear}, visitor_{visitor} {}

  bool run() {
    constexpr std::size_t maximum = 8192;  // at a time
    const Copy<engine::MapPage> map{maximum};
    const std::size_t page_count = image_.page_count();
    for (std::size_t first = 0; first < page_count;) {
      const std::size_t count = std::min(maximum, page_count - first);
      if (!map.read(process_, address_in(image_.map().pages, first), count)) return false;
      const bool is_last = first + count == page_count;
      std::size_t i = 0;
      while (i < count && (is_last || count - i >= engine::max_slab_pages)) {
        const std::size_t pages = visit(first + i, &map[i], count - i);
        if (pages == 0) return false;
        i += pages;
      }
      first += i;
    }
    return true;
  }

 private:
  // Returns the length of the span in pages; 0 if memory is unreadable.
  std::size_t visit(std::size_t page, const engine::MapPage* map, std::size_t known) {
    const engine::PageMapEntry entry = map->entry.load(std::memory_order_relaxed);
    const std::size_t left = image_.page_count() - page;
    const unsigned size_class = engine::class_of(entry);
    if (engine::is_of_slab(entry) && size_class != 0 && size_class < engine::class_count) {
      const std::size_t pages = pages_of_slab(map, known);
      return visitor_.visit_slab(page, pages, entry) ? pages : 0;
    }
    const std::size_t pages = map->slab_begin & ~engine::has_tail;
    if (entry == engine::large_entry && pages != 0 && pages <= left) {
      const bool has_tail = (map->slab_begin & engine::has_tail) != 0 && known > 1;
      const std::size_t usable = has_tail ? map[1].slab_begin : pages;
      visitor_.visit_large(page, pages, std::min(usable, pages));
      return pages;
    }
    const engine::Span* const span = spans_.at(page, 1);
    if (span == nullptr) return 0;
    if (span->pages == 0 || span->pages > left) {
      ++unclear_;
      return 1;
    }
    visitor_.visit_other(page, *span);
    return span->pages;
  }

  const Process& process_;
  const EngineImage& image_;
  SpanWindow& spans_;
  std::size_t& unclear_;
  Visitor& visitor_;
};

}  // namespace ts
