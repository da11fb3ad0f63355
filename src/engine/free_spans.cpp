#include "engine/free_spans.h"

#include <bit>

#include "base/check.h"

namespace ts::engine {

unsigned FreeSpans::list_of(std::size_t pages) noexcept {
  if (pages < exact_lists) return static_cast<unsigned>(pages);
  const unsigned log = static_cast<unsigned>(std::bit_width(pages)) - 1;
  return exact_lists + (log - 6) * 8 + static_cast<unsigned>((pages >> (log - 3)) & 7);
}

void FreeSpans::insert(Span* span) noexcept {
  const std::size_t pages = span->pages;
  check(pages != 0 && pages < max_pages, "a free span has an impossible length", span);
  const unsigned list = list_of(pages);
  span->previous = nullptr;
  span->next = heads_[list];
  if (span->next != nullptr) span->next->previous = span;
  heads_[list] = span;
  occupied_[list / 64] |= std::uint64_t{1} << list % 64;
  pages_ += pages;
}

void FreeSpans::remove(Span* span) noexcept {
  const unsigned list = list_of(span->pages);
  check((span->next == nullptr || span->next->previous == span) &&
            (span->previous != nullptr ? span->previous->next : heads_[list]) == span,
        "a free span is linked in both directions, in the list of its length", span);
  if (span->next != nullptr) span->next->previous = span->previous;
  (span->previous != nullptr ? span->previous->next : heads_[list]) = span->next;
  if (heads_[list] == nullptr) occupied_[list / 64] &= ~(std::uint64_t{1} << list % 64);
  pages_ -= span->pages;
}

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

Span* FreeSpans::longest() const noexcept {
  for (unsigned word = list_count / 64; word-- > 0;) {
    if (occupied_[word] != 0)
      return heads_[word * 64 + static_cast<unsigned>(std::bit_width(occupied_[word])) - 1];
  }
  return nullptr;
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
