// Free spans of one kind, dirty or clean, in lists by length. The lists are exact up to 63 pages,
// then eight per octave ("good fit": Masmano et al., TLSF, 2004). Guarded by the page heap's lock.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/fault.h"
#include "core/types.h"

namespace ts::engine {

class FreeSpans {
 public:
  constexpr FreeSpans() = default;

  // The span's length must be set.
  void insert(Span* span) noexcept;
  void remove(Span* span) noexcept;

  // A span of at least this many pages, or null: the first fit among a few spans in the list of
  // that length, else any span of the next longer list.
  Span* find(std::size_t pages) const noexcept;

  // A span from the list of the longest; null if there are none.
  Span* longest() const noexcept;

  // The span after this one, from longer lists to shorter ones; null after the last.
  Span* next_shorter(const Span* span) const noexcept;

  // Whether the list for this length begins with `span`, which is not read.
  bool has_first(const Span* span, std::size_t pages) const noexcept {
    return heads_[list_of(pages)] == span;
  }

  // Pages of all its spans.
  std::size_t pages() const noexcept { return pages_; }

  // Looks for a list whose links, lengths or `occupied_` bits disagree. All its spans must have
  // this `zeroed`.
  Fault find_fault(bool zeroed) const noexcept;

 private:
  friend struct FreeSpansTest;

  static constexpr unsigned exact_lists = 64;
  static constexpr unsigned list_count = 256;
  static constexpr std::size_t max_pages = std::size_t{1} << 30;  // the last list's

  static unsigned list_of(std::size_t pages) noexcept;
  Span* longest_below(unsigned list) const noexcept;

  Span* heads_[list_count] = {};
  std::uint64_t occupied_[list_count / 64] = {};  // a bit for each list that is not empty
  std::size_t pages_ = 0;
};

inline unsigned FreeSpans::list_of(std::size_t pages) noexcept {
  if (pages < exact_lists) return static_cast<unsigned>(pages);
  const unsigned log = static_cast<unsigned>(std::bit_width(pages)) - 1;
  return exact_lists + (log - 6) * 8 + static_cast<unsigned>((pages >> (log - 3)) & 7);
}

inline void FreeSpans::insert(Span* span) noexcept {
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

inline void FreeSpans::remove(Span* span) noexcept {
  const unsigned list = list_of(span->pages);
  check(span->next == nullptr || span->next->previous == span,
        "a free span is linked in both directions", span);
  if (span->next != nullptr) span->next->previous = span->previous;
  if (span->previous != nullptr) {
    check(span->previous->next == span, "a free span is linked in both directions", span);
    span->previous->next = span->next;
  } else {
    check(heads_[list] == span, "a free span is in the list of its length", span);
    heads_[list] = span->next;
  }
  if (heads_[list] == nullptr) occupied_[list / 64] &= ~(std::uint64_t{1} << list % 64);
  pages_ -= span->pages;
}

}  // namespace ts::engine
