// All spans, under one lock. Free spans are dirty (resident) or clean (they read as zero). Each
// kind is merged with its neighbours at once, but never with the other kind. A request takes dirty
// memory if a span is long enough (or, from 1 MiB on, together with adjacent clean spans), then
// clean memory, then memory beyond the end. So a page is touched for the first time only if no
// touched page can be used. Dirty memory is purged according to purge_policy.h, in pieces of at
// least 64 KiB. A purge only chooses the spans under the lock. They are then in no list until
// send_purges(), which a thread calls without a lock or a hold, since another library may see the
// system call (os.h).
//
//   release -> insert_coalesced -> choose_surplus -> choose_purges (page_heap_purge.cpp)
//   do_deferred_work -> send_purges -> purge_within
//   allocate -> take -> find in dirty_, clean_ -> cut
//                    -> grow -> commit (page_heap_growth.cpp) -> address_range.h
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/fault.h"
#include "core/address_range.h"
#include "core/free_spans.h"
#include "core/page_map.h"
#include "core/purge_policy.h"
#include "os/mutex.h"

namespace ts::engine {

class PageHeap {
 public:
  constexpr PageHeap() = default;

  // Where to take memory from: dirty (perhaps joined with clean neighbours), clean only, or either.
  enum class From { dirty, clean, anywhere };

  // Allocates a span of `pages` at a multiple of `alignment_pages` (a power of two), for a slab of
  // the class, or for a large block if that is 0. Null if there is none. The span is unused, and
  // its map entries are 0.
  Span* allocate(std::size_t pages, std::size_t alignment_pages, unsigned size_class,
                 From from) noexcept;

  // Frees a span. Its map entries must be 0 again. Like resize() and allocate(), it may leave spans
  // for send_purges().
  void release(Span* span) noexcept;
  // Frees a large span that reads as zero after its first `dirty` pages.
  void release_clean(Span* span, std::size_t dirty = 0) noexcept;

  // Resizes a large span in place. Changes nothing and returns false if other memory follows it;
  // or, if its pages can move, if it would move the end of all spans although there is a clean span
  // half as long again. Without a lock or a hold.
  bool resize(Span* span, std::size_t pages, bool can_move = false) noexcept;

  // Whether touched memory can satisfy a request for `pages`; a hint, out of date at once.
  bool has_dirty(std::size_t pages) noexcept {
    const Guard guard{lock_};
    return pages <= AddressRange::max_pages && dirty_.find(pages) != nullptr;
  }

  // How many pages after a span in use are free and read as zero; a hint, out of date at once.
  std::size_t clean_after(const Span* span) noexcept;

  // Makes room for one more heap's structure, zero-filled, and for `spare` more after it; returns
  // its number, or 0 if there is no room.
  std::uint32_t new_heap(std::uint32_t spare) noexcept;

  // Pages that are in use or dirty, and so may have been touched.
  std::size_t touched_pages() noexcept;
  std::size_t dirty_pages() noexcept;
  // Sets the limits in bytes; the soft limit is for reports only (limits.h).
  static constexpr std::size_t no_limit = ~std::size_t{0};
  void limit(std::size_t soft_bytes, std::size_t hard_bytes) noexcept;
  // Whether `pages` more are within the hard limit, if necessary after purging dirty memory.
  // Without a lock or a hold. allocate() checks this itself, except for clean memory that pages
  // move to; it fails if purges have to be sent first.
  bool has_room(std::size_t pages) noexcept;
  // How many purges, by any thread, have ended. Spans are in no list while they are purged: if this
  // changed during an allocation that failed, another try may succeed.
  std::uint32_t ended_purges() const noexcept {
    // relaxed: stored under the lock, which the allocation takes later
    return purges_.load(std::memory_order_relaxed);
  }
  // Purges the spans that were chosen, until none is left; returns how many pages were purged.
  // Without a lock or a hold: a replaced system function may allocate.
  std::size_t send_purges() noexcept;
  // Whether there may be purges to send.
  bool has_purges() const noexcept { return has_purges_.load(std::memory_order_relaxed); }

  // Waits up to a millisecond while another thread's purge is in progress and none has ended since
  // `ended_purges`, which is set to the present count. False if none is in progress and none has
  // ended.
  bool wait_for_purge(std::uint32_t& ended_purges) noexcept;

  // trim(), merge_for() and purge_some() send purges, so call them without a lock or a hold. Purges
  // all dirty memory but about `keep_bytes`; true if there was any.
  bool trim(std::size_t keep_bytes) noexcept;

  // Returns the memory of the tables for long clean spans to the system, except for the spans'
  // ends.
  void give_back_tables() noexcept;

  // Purges all dirty memory, so that all free spans merge, if they have that many pages together.
  // False if not, or if nothing was dirty.
  bool merge_for(std::size_t pages) noexcept;

  // Purges a slice of what a release left to purge, or of what the policy finds to be too much;
  // short spans only if the program `is_quiet`. True if there is more to do.
  bool purge_some(bool is_quiet) noexcept;

  // For a background thread: purges in rounds, of slices. end_round() returns how many pages the
  // policy finds idle, and whether it has found so for some rounds.
  struct RoundEnd {
    std::size_t pages_to_purge = 0;
    bool is_settled = false;
  };
  RoundEnd end_round() noexcept;
  // Purges at most `pages`, and at most a slice; returns how many pages were purged.
  std::size_t purge_slice(std::size_t pages) noexcept;
  // Whether a release purges only a slice, and leaves the others to a background thread. Ends a
  // watch_dirty_memory().
  void limit_releases_to_a_slice(bool limit) noexcept;
  // Whether more is dirty than an idle process may keep (PurgePolicy::rest_limit).
  bool has_surplus_at_rest() noexcept;
  // From now on, the first release that leaves more than that, and at least 1 MiB more than now,
  // calls hooks::dirty_memory_grew().
  void watch_dirty_memory() noexcept;

  // In the child of a fork, where no other thread purges. Under lock().
  void forget_other_threads() noexcept TS_NO_ANALYSIS;

  // Calls `visit(span)` for every span in address order, under the lock.
  template <class Visit>
  void for_each(Visit visit) noexcept {
    const Guard guard{lock_};
    for (std::size_t i = 0; i < top_; i += page_map.spans[i].pages) visit(page_map.spans[i]);
  }

  // Checks the invariants of spans (types.h) that need no other lock. Takes time proportional to
  // the number of spans.
  Fault find_fault() noexcept;

  struct Totals {
    std::size_t segment_bytes = 0;
    std::size_t grow_calls = 0;
    std::size_t table_bytes = 0;  // of the page map and the heaps
    std::size_t limit_bytes = 0;  // see HeapMeasures
    std::size_t hard_limit_bytes = 0;
  };
  Totals totals() noexcept;

  // For a copy of another process's page heap (tools/inspect). `has_first`: whether a list of free
  // spans begins with `span`.
  constexpr const Mutex& lock() const noexcept { return lock_; }
  bool has_first(const Span* span, std::size_t pages, bool zeroed) const noexcept TS_NO_ANALYSIS {
    return (zeroed ? clean_ : dirty_).has_first(span, pages);
  }
  std::size_t growths() const noexcept TS_NO_ANALYSIS { return grow_calls_; }
  std::size_t limit_bytes() const noexcept TS_NO_ANALYSIS {
    return soft_limit_bytes_ == no_limit ? 0 : soft_limit_bytes_;
  }
  std::size_t hard_limit_bytes() const noexcept TS_NO_ANALYSIS {
    return hard_limit_bytes_ == no_limit ? 0 : hard_limit_bytes_;
  }

  // For fork.cpp, which takes all locks in order.
  constexpr Mutex& lock() noexcept { return lock_; }

 private:
  friend struct PageHeapTest;

  FreeSpans& spans_of(const Span& span) noexcept { return span.zeroed ? clean_ : dirty_; }
  std::size_t in_use() const noexcept {
    return top_ - dirty_.pages() - clean_.pages() - purging_pages_;
  }
  std::size_t touched() const noexcept { return top_ - clean_.pages(); }
  std::size_t rest_limit() const noexcept {
    return PurgePolicy::rest_limit(in_use(), purge_delay());
  }
  Span* end() const noexcept { return page_map.spans + top_; }

  static constexpr std::size_t min_purge_pages = (std::size_t{64} << 10) / page_bytes;
  // The system takes about a millisecond to purge a slice. A release purges at most some slices, or
  // one if there is a background thread for the rest.
  static constexpr std::size_t slice_pages = (std::size_t{8} << 20) / page_bytes;
  static constexpr std::size_t pages_of_a_call = 8 * slice_pages;
  static constexpr std::size_t slice_of_scavenging = 2 * slice_pages;

  void insert(Span* span, std::size_t pages, bool zeroed) noexcept TS_REQUIRES(lock_);
  void remove(Span* span) noexcept TS_REQUIRES(lock_);
  void insert_coalesced(Span* span, std::size_t pages, bool zeroed) noexcept TS_REQUIRES(lock_);
  void unlink_free(Span* span) noexcept TS_REQUIRES(lock_);
  bool has_clean(std::size_t pages) const noexcept { return clean_.find(pages) != nullptr; }
  bool is_room_for(std::size_t pages) const noexcept { return touched() + pages <= limit_pages_; }
  void make_room(std::size_t pages) noexcept TS_REQUIRES(lock_);
  Span* take(std::size_t enough, std::size_t pages, From from, bool may_join) noexcept
      TS_REQUIRES(lock_);
  Span* join(Span* span, std::size_t pages, bool may_begin_before) noexcept TS_REQUIRES(lock_);
  Span* join_longest(std::size_t pages) noexcept TS_REQUIRES(lock_);
  Span* cut(Span* span, std::size_t pages, std::size_t alignment_pages) noexcept TS_REQUIRES(lock_);
  static void set_in_use(Span* span, std::size_t pages, SpanState state) noexcept;

  Span* grow(std::size_t pages, From from) noexcept TS_REQUIRES(lock_);
  bool commit(std::size_t pages) noexcept TS_REQUIRES(lock_);
  void move_end(std::size_t top) noexcept TS_REQUIRES(lock_);

  std::size_t take_rest_of_huge_page(const Span* span, std::size_t pages) noexcept
      TS_REQUIRES(lock_);
  Span* purge_within(Span* span) noexcept TS_REQUIRES(lock_);
  Span* next_chosen(std::size_t& refused) noexcept TS_REQUIRES(lock_);
  void end_purge(Span* span, std::size_t pages) noexcept TS_REQUIRES(lock_);
  void purge_all_but(std::size_t pages) noexcept;
  void end_watch() noexcept TS_REQUIRES(lock_);
  std::size_t choose_purges(std::size_t keep_pages, std::size_t min_pages,
                            std::size_t at_most) noexcept TS_REQUIRES(lock_);
  void choose_surplus(std::size_t min_pages, std::size_t at_most) noexcept TS_REQUIRES(lock_);
  void choose_by_policy(std::size_t min_pages, std::size_t at_most) noexcept TS_REQUIRES(lock_);
  void choose_surplus() noexcept TS_REQUIRES(lock_) {
    choose_surplus(min_purge_pages, pages_of_a_call);
  }

  // If the system counts all writable memory (overcommit_memory=2), clean memory of at least 1 MiB
  // is decommitted, which gives up its charge, and committed again before use.
  static bool gives_up_charge(std::byte* begin, std::size_t bytes) noexcept;
  static bool takes_charge(Span* span, std::size_t pages) noexcept;

  void check_unused(const Span& span) noexcept TS_REQUIRES(lock_);

  Mutex lock_;
  FreeSpans dirty_;
  FreeSpans clean_;
  AddressRange range_;
  PurgePolicy policy_;
  std::size_t top_ = 0;        // pages that have ever been in a span
  std::size_t committed_ = 0;  // pages that may be touched
  std::size_t grow_calls_ = 0;
  // Being purged: chosen, or taken by threads that purge them.
  std::size_t purging_pages_ = 0;
  Plain<Span*> first_chosen_ = nullptr;  // a queue
  Plain<Span*> last_chosen_ = nullptr;
  struct {
    std::size_t keep_pages = 0;
    std::size_t min_pages = 0;
  } last_purge_;
  Plain<Span*> leaving_ = nullptr;  // linked in both directions
  Atomic<bool> has_purges_{false};  // whether there is a chosen one; stored under the lock
  std::uint32_t waiting_for_purges_ = 0;
  // How many have ended. Stored under the lock; waited on by the system.
  Atomic<std::uint32_t> purges_{0};
  std::size_t limit_pages_ = no_limit;
  Atomic<bool> is_limited_{false};           // stored under the lock
  std::size_t soft_limit_bytes_ = no_limit;  // for reports, as the next
  std::size_t hard_limit_bytes_ = no_limit;
  static constexpr std::size_t never = ~std::size_t{0};
  std::size_t watched_above_ = never;  // see watch_dirty_memory()
  bool releases_a_slice_ = false;
};

inline constinit PageHeap page_heap;

}  // namespace ts::engine
