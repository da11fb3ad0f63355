// Spans of granules for all threads, under one lock. Free spans lie in lists by length, dirty ones
// (whose pages are resident) apart from clean ones; neighbours are merged at once. A request is
// served from dirty memory if there is any of that length, then from clean memory, then from beyond
// the end: a page is touched for the first time only when no touched one serves.
//
// Memory goes back to the system in pieces of 64 KiB and more: when more than a quarter of what is
// in use, and more than 4 MiB, has been lying idle all through a quarter of a second, which a later
// release notices; and at once when so much lies idle that it may well be the end of a peak, after
// which no call may come. A program that turns out to need it again soon is allowed twice as much.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/layout.h"
#include "engine/room.h"
#include "os/mutex.h"

namespace ts::engine {

class PageHeap {
 public:
  constexpr PageHeap() = default;

  // Which memory serves: touched memory only, such as reads as zero only, or either.
  enum class From { dirty, clean, anywhere };

  // A span of `granules` whose first granule is at a multiple of `alignment_granules` (a power of
  // two), for a slab of the class, or for a large block if it is 0; null if there is none. Nothing
  // of it is used yet, and its map entries are 0.
  Span* allocate(std::size_t granules, std::size_t alignment_granules, unsigned size_class,
                 From from) noexcept;

  // Takes a span back. Its map entries must be 0 again.
  void release(Span* span) noexcept;
  // The same of a span that reads as zero.
  void release_clean(Span* span) noexcept;

  // Makes a large span so long without moving it, or changes nothing and returns false.
  bool resize(Span* span, std::size_t granules) noexcept;

  // How many granules behind a span in use are free, and read as zero; they may not be any longer
  // when this returns.
  std::size_t clean_behind(const Span* span) noexcept;

  // Room for one more heap's structure, zero-filled; 0 if there is none, else its number.
  std::uint32_t new_heap() noexcept;

  // Gives all free memory back but about `keep_bytes`; true if there was any.
  bool trim(std::size_t keep_bytes) noexcept;

  // Calls `visit(span)` for every span in the order of addresses, under the lock.
  template <class Visit>
  void for_each(Visit visit) noexcept {
    const Guard guard{lock_};
    for (std::size_t i = 0; i < top_; i += layout.spans[i].granules) visit(layout.spans[i]);
  }

  bool is_valid() noexcept;

  struct Totals {
    std::size_t segment_bytes = 0;
    std::size_t grow_calls = 0;
    std::uint32_t heaps = 0;
  };
  Totals totals() noexcept;

  void fork_prepare() noexcept { lock_.lock_for_fork(); }
  void fork_parent() noexcept { lock_.unlock_after_fork(); }
  void fork_child() noexcept { lock_.reset_after_fork(); }

 private:
  // Lists of equal length up to 63 granules, then eight to an octave.
  static constexpr unsigned exact_lists = 64;
  static constexpr unsigned list_count = 256;

  struct FreeLists {
    Span* heads[list_count] = {};
    std::uint64_t occupied[list_count / 64] = {};
    std::size_t granules = 0;
  };

  static unsigned list_of(std::size_t granules) noexcept;
  void insert(Span* span, std::size_t granules, bool zeroed) noexcept;
  void remove(Span* span) noexcept;
  static Span* find(const FreeLists& lists, std::size_t granules) noexcept;
  void claim(Span* span) noexcept;
  Span* take(std::size_t granules, From from) noexcept;
  Span* cut(Span* span, std::size_t granules, std::size_t alignment_granules) noexcept;
  Span* grow(std::size_t granules, From from) noexcept;
  bool commit(std::size_t granules) noexcept;
  void move_end(std::size_t top) noexcept;
  void give_up(Span* span, std::size_t granules, bool zeroed) noexcept;
  static void set_in_use(Span* span, std::size_t granules) noexcept;
  static Span* longest(const FreeLists& lists) noexcept;
  std::size_t claim_rest_of_huge_page(const Span* span, std::size_t granules) noexcept;
  void purge(std::size_t keep_granules, std::size_t min_granules) noexcept TS_REQUIRES(lock_);
  void purge_surplus() noexcept TS_REQUIRES(lock_);
  void purge_and_remember(std::size_t keep_granules, std::uint64_t now) noexcept TS_REQUIRES(lock_);
  void regret_purge() noexcept;

  Mutex lock_;
  FreeLists dirty_;
  FreeLists clean_;
  Room room_;
  std::size_t top_ = 0;                // granules that have ever been in a span
  std::size_t dense_granules_ = 0;     // granules of slabs of small blocks
  std::size_t committed_ = 0;          // granules that may be touched
  std::uint64_t window_began_ms_ = 0;  // of the time over which the least is taken
  std::size_t least_dirty_ = 0;        // dirty granules: so many were idle all the time
  std::uint64_t purged_at_ms_ = 0;     // the last time,
  std::size_t purged_from_ = 0;        // when there were so many dirty granules
  bool may_regret_ = false;            // no fresh memory was needed since then
  std::size_t regretted_ = 0;          // so many dirty granules are not too many
  std::size_t grow_calls_ = 0;
};

inline constinit PageHeap page_heap;

}  // namespace ts::engine
