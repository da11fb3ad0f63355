#include "core/free_spans.h"

#include <bit>

namespace ts::engine {

Span* FreeSpans::find(std::size_t pages) const noexcept {
  constexpr int looked_at = 16;
  const unsigned own = list_of(pages);
  int left = looked_at;
  for (Span* span = heads_[own]; span != nullptr && left != 0; span = span->next, --left) {
    if (span->pages >= pages) return span;
  }
  unsigned word = (own + 1) / 64;
  if (word >= list_count / 64) return nullptr;
  std::uint64_t bits = occupied_[word] & (~std::uint64_t{0} << (own + 1) % 64);
  while (bits == 0) {
    if (++word == list_count / 64) return nullptr;
    bits = occupied_[word];
  }
  return heads_[word * 64 + static_cast<unsigned>(std::countr_zero(bits))];
}

// The first span of the longest nonempty list below this one; null if there is none.
Span* FreeSpans::longest_below(unsigned list) const noexcept {
  std::uint64_t below = (std::uint64_t{1} << list % 64) - 1;
  for (unsigned word = list / 64 + 1; word-- > 0; below = ~std::uint64_t{0}) {
    const std::uint64_t bits = word < list_count / 64 ? occupied_[word] & below : 0;
    if (bits != 0) return heads_[word * 64 + static_cast<unsigned>(std::bit_width(bits)) - 1];
  }
  return nullptr;
}

Span* FreeSpans::longest() const noexcept { return longest_below(list_count); }

Span* FreeSpans::next_shorter(const Span* span) const noexcept {
  if (span->next != nullptr) return span->next;
  return longest_below(list_of(span->pages));
}

Fault FreeSpans::find_fault(bool zeroed) const noexcept {
  std::size_t pages = 0;
  for (unsigned list = 0; list < list_count; ++list) {
    const bool is_marked = (occupied_[list / 64] >> list % 64 & 1) != 0;
    if (is_marked != (heads_[list] != nullptr))
      return {"a list of free spans is marked, if and only if it is not empty", heads_[list]};
    const Span* before = nullptr;
    for (const Span* span = heads_[list]; span != nullptr; before = span, span = span->next) {
      if (span->previous != before) return {"free spans are linked in both directions", span};
      if (span->state != SpanState::free) return {"a listed free span is free", span};
      if (span->zeroed != zeroed) return {"dirty and clean spans are listed apart", span};
      if (list_of(span->pages) != list) return {"a free span is in the list of its length", span};
      pages += span->pages;
      if (pages > pages_) return {"lists of free spans have as many pages as they count", span};
    }
  }
  if (pages != pages_) return {"lists of free spans have as many pages as they count", nullptr};
  return {};
}

}  // namespace ts::engine
