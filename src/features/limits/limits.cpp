#include "features/limits/limits.h"

#include <algorithm>
#include <cerrno>

#include "core/attention.h"
#include "core/current_heap.h"
#include "core/heap_hold.h"
#include "core/heap_lifecycle.h"
#include "core/hooks.h"
#include "core/page_heap.h"
#include "core/reclaim_all.h"
#include "core/remote_frees.h"
#include "core/spare_lists.h"
#include "features/hugepages/huge_pages.h"
#include "features/profile/profiling.h"
#include "os/cgroup.h"
#include "os/error_line.h"
#include "os/options.h"
#include "os/os.h"

namespace ts::engine {
namespace {

using limits::first_look_pages;
using limits::fresh_left;

constexpr std::size_t pages_of_step = (std::size_t{2} << 20) / page_bytes;
constexpr std::size_t max_pages_between_looks = (std::size_t{256} << 20) / page_bytes;
constexpr std::uint64_t limit_age_ms = 1000;    // then the limit is read again
constexpr std::uint64_t purge_pause_ms = 1000;  // after a purge that did not suffice
constexpr std::size_t least_dirty_part = 64;    // of the limit is purged meanwhile
constexpr std::uint64_t event_pause_ms = 60'000;
constexpr std::size_t without_limit = PageHeap::no_limit;

// One thread at a time checks the limits. acquire and release: each check sees the stores of the
// previous one.
constinit std::atomic<std::uint32_t> is_looking{0};

// Changed only by checks.
struct Limits {
  os::Cgroup group;
  bool has_group = false;
  bool counts_group = false;               // compare the group's usage, not the page heap's
  std::size_t soft_bytes = without_limit;  // as is every limit that is not set
  std::uint64_t read_at = 0;               // milliseconds; 0: never
  std::uint64_t purged_at = 0;
  bool is_live_above = false;  // the last purge left more than the limit
  std::uint64_t told_at = 0;   // when the event was last reported
};
constinit Limits now;
// Nonzero if options changed. (A word, because riscv64 needs libatomic to exchange a byte.)
// relaxed: set before fresh_left is, and a check that misses it reads the options a second later
constinit std::atomic<std::uint32_t> has_changed{0};

// One bit for each event that is due, and the bytes of each. relaxed: a later event's bytes with an
// earlier event would be harmless.
constinit std::atomic<std::uint32_t> due{0};
constinit std::atomic<std::size_t> due_bytes[2]{};
constinit std::atomic<LimitHandler*> handler{nullptr};
// The ID of the thread that calls the handler, or 0; calls do not overlap. Sequentially consistent,
// like the stores to `due`: a thread that finds another one calling has set its bit before, and the
// other checks the bits after its call.
constinit std::atomic<std::uint32_t> delivering{0};
// How many pages the hard limit refused, and how many were touched then; 0: reported, or none.
// relaxed, like those of events.
constinit std::atomic<std::size_t> refused_pages{0};
constinit std::atomic<std::size_t> refused_at{0};
constinit std::atomic<std::uint32_t> has_told{0};

std::size_t bytes_of(SizeOption option, std::size_t whole) noexcept {
  if (option.is_word()) return without_limit;
  if (!option.is_percent()) return option.number();
  return whole == 0 ? without_limit : whole / 100 * option.number();
}

enum : std::uint64_t { automatic = 0, off = 1 };

// Reads options and groups.
void read_limits(std::uint64_t time) noexcept {
  const SizeOption soft = current_options.limit;
  const SizeOption hard = current_options.hard_limit;
  now.read_at = time;
  now.has_group = (soft.bits == automatic || soft.is_percent() || hard.is_percent()) &&
                  os::find_cgroup("", now.group);
  const bool has_part = soft.is_percent() || hard.is_percent();
  const std::size_t whole = now.has_group ? now.group.limit_bytes
                            : has_part    ? os::machine_memory()
                                          : 0;
  now.soft_bytes = bytes_of(soft, whole);
  if (soft.bits == automatic && now.has_group) now.soft_bytes = whole / 10 * 9;
  now.counts_group = now.has_group && (soft.is_word() || soft.is_percent());
  const std::size_t hard_bytes = bytes_of(hard, whole);
  now.soft_bytes = std::min(now.soft_bytes, hard_bytes);
  page_heap.limit(now.soft_bytes, hard_bytes);
}

// (Blocks may not be touched yet; then the group does not count them.)
std::size_t used_bytes(std::size_t more) noexcept {
  const std::size_t own = page_heap.touched_pages() * page_bytes;
  const std::size_t enough = now.soft_bytes - std::min(now.soft_bytes, more);
  return now.counts_group ? std::max(own, os::used_by(now.group, enough)) : own;
}

// False if there is no handler and no profile for it, or if the handler's own request is the cause,
// which would call it again and again.
bool note_event(LimitEvent event, std::size_t bytes) noexcept {
  if (handler.load(std::memory_order_relaxed) == nullptr && !profiles_at_limit()) return false;
  if (delivering.load(std::memory_order_relaxed) == os::thread_id()) return false;
  const auto bit = static_cast<std::uint32_t>(event);
  due_bytes[bit - 1].store(bytes, std::memory_order_relaxed);
  due.fetch_or(bit, std::memory_order_seq_cst);  // see `delivering`
  request_attention();
  return true;
}

// Frees and purges everything that no thread needs and no other thread is working on.
void give_back() noexcept {
  if (has_heap()) {
    const HeapHold hold{current_heap()};
    flush_batches(current_heap());
    flush_first_spare_lists(current_heap(), max_spare_lists);
    collect(current_heap());
  }
  collect_abandoned(SIZE_MAX);
  while (purge_abandoned()) continue;
  reclaim_all();
  page_heap.trim(0);
}

// Compares what is used, plus `more` bytes, with the limits. Returns how many pages may be touched
// until the next check.
std::size_t weigh(std::size_t more, std::uint64_t time) noexcept {
  if (now.is_live_above && time - now.purged_at < purge_pause_ms) {
    // Everything was purged a moment ago, and it did not suffice; only what became dirty since then
    // can help.
    if (page_heap.dirty_pages() * page_bytes >= now.soft_bytes / least_dirty_part)
      page_heap.trim(0);
    return pages_of_step;
  }
  std::size_t used = used_bytes(more);
  const bool is_above = used + more > now.soft_bytes;
  note_memory(is_above);
  now.is_live_above = false;
  if (is_above) {
    const bool is_paused = now.told_at != 0 && time - now.told_at < event_pause_ms;
    if (!is_paused && note_event(LimitEvent::soft, used)) now.told_at = time;
    give_back();
    now.purged_at = time;
    used = used_bytes(more);
    now.is_live_above = used + more > now.soft_bytes;
  }
  const std::size_t half = now.soft_bytes / 2;
  return (half - std::min(half, used + more)) / page_bytes;
}

bool names_limit() noexcept {
  const SizeOption soft = current_options.limit;
  const SizeOption hard = current_options.hard_limit;
  return !soft.is_word() || !hard.is_word() || now.soft_bytes != without_limit;
}

// Returns how many pages may be touched until the next check.
std::size_t look_now(std::size_t pages) noexcept {
  const std::size_t heap = page_map.page_count.load(std::memory_order_relaxed);
  const bool is_small = heap + pages < first_look_pages;
  if (is_small && !names_limit()) return first_look_pages - heap;
  const std::uint64_t time = os::coarse_milliseconds();
  const std::size_t most = std::clamp(heap, first_look_pages, max_pages_between_looks);
  const bool is_old = time - now.read_at >= limit_age_ms;
  const bool has_grown = pages != 0 && now.soft_bytes == without_limit;
  if (has_changed.exchange(0, std::memory_order_relaxed) != 0 || is_old || has_grown)
    read_limits(time);
  if (now.soft_bytes == without_limit) {
    note_memory(false);
    return most;
  }
  return std::clamp(weigh(pages * page_bytes, time), pages_of_step, most);
}

}  // namespace

void limits::look(std::size_t pages) noexcept {
  if (is_looking.exchange(1, std::memory_order_acquire) != 0) return;
  auto left = static_cast<std::int64_t>(look_now(pages));
  // A check without growth postpones none.
  if (pages == 0) left = std::min(left, fresh_left.load(std::memory_order_relaxed));
  fresh_left.store(left, std::memory_order_relaxed);
  is_looking.store(0, std::memory_order_release);
}

void look_at_limits() noexcept { limits::look(0); }

void follow_limit_options() noexcept {
  has_changed.store(1, std::memory_order_relaxed);
  fresh_left.store(0, std::memory_order_relaxed);
}

void hooks::growth_refused(std::size_t touched_pages, std::size_t pages) noexcept {
  refused_at.store(touched_pages, std::memory_order_relaxed);
  refused_pages.store(pages, std::memory_order_relaxed);
}

namespace {

// If the hard limit refused an allocation, says so on standard error, once.
void explain_refusal() noexcept {
  const std::size_t pages = refused_pages.exchange(0, std::memory_order_relaxed);
  if (pages == 0) return;
  const std::size_t bytes = refused_at.load(std::memory_order_relaxed) * page_bytes;
  if (has_told.exchange(1, std::memory_order_relaxed) == 0) {
    const int kept = errno;
    os::ErrorLine line{"out of memory: "};
    line.number(bytes);
    line.text(" bytes are in use, ");
    line.number(pages * page_bytes);
    line.text(" more are needed, and TSMALLOC_HARD_LIMIT is ");
    char limit[32] = "";
    write_option("HARD_LIMIT", limit, sizeof limit);
    line.text(limit);
    line.text("; further refusals are not reported (ts_on_event)");
    line.write();
    errno = kept;
  }
  note_event(LimitEvent::hard, bytes);
}

}  // namespace

void hooks::before_failure() noexcept {
  explain_refusal();
  deliver_limit_events();
}

void set_limit_handler(LimitHandler* called) noexcept {
  handler.store(called, std::memory_order_relaxed);
}

void deliver_limit_events() noexcept {
  if (due.load(std::memory_order_relaxed) == 0) return;
  std::uint32_t none = 0;
  if (!delivering.compare_exchange_strong(none, os::thread_id(), std::memory_order_seq_cst)) return;
  const std::uint32_t events = due.exchange(0, std::memory_order_relaxed);
  LimitHandler* const called = handler.load(std::memory_order_relaxed);
  const int kept = errno;
  const OutOfScope out_of_scope;  // the handler's blocks are not the arena's
  if (events != 0) profile_at_limit();
  for (const LimitEvent event : {LimitEvent::soft, LimitEvent::hard}) {
    const auto bit = static_cast<std::uint32_t>(event);
    if ((events & bit) != 0 && called != nullptr)
      called(static_cast<int>(bit), due_bytes[bit - 1].load(std::memory_order_relaxed));
  }
  errno = kept;
  delivering.store(0, std::memory_order_seq_cst);
  if (due.load(std::memory_order_seq_cst) != 0) request_attention();
}

void forget_looks() noexcept {
  is_looking.store(0, std::memory_order_relaxed);
  delivering.store(0, std::memory_order_relaxed);
}

}  // namespace ts::engine
