#include "core/large_memory.h"

#include <atomic>
#include <bit>
#include <cstdint>

#include "core/hooks.h"
#include "core/page_map.h"
#include "os/os.h"
#include "os/touched_pages.h"

namespace ts::engine {

// ---- pages that move ----

namespace {

constexpr std::uint32_t moves_per_look = 8192;
// Fewer moves leave at most some thousand mappings, so no system call is needed.
constexpr std::uint32_t few_moves = 512;

// All relaxed: no data depends on them.
constinit std::atomic<std::uint32_t> moves{0};
constinit std::atomic<bool> were_many{false};
constinit std::atomic<bool> has_mappings_left{true};
constinit std::atomic<bool> has_stopped{false};

}  // namespace

bool may_move() noexcept {
  return has_mappings_left.load(std::memory_order_relaxed) &&
         !has_stopped.load(std::memory_order_relaxed) && os::can_move_pages();
}

bool begin_move() noexcept {
  const std::uint32_t before = moves.fetch_add(1, std::memory_order_relaxed);
  if (before == few_moves) were_many.store(true, std::memory_order_relaxed);
  if (before % moves_per_look == moves_per_look - 1) {
    has_mappings_left.store(has_half_of_mappings(), std::memory_order_relaxed);
    has_stopped.store(false, std::memory_order_relaxed);
  }
  return may_move();
}

void stop_moving() noexcept { has_stopped.store(true, std::memory_order_relaxed); }

bool merge_mappings(void* begin, std::size_t bytes) noexcept {
  if (!were_many.load(std::memory_order_relaxed) || has_stopped.load(std::memory_order_relaxed))
    return true;
  const bool is_there = os::remap(begin, bytes);
  is_there ? hooks::fresh_memory(static_cast<std::byte*>(begin), bytes, false) : stop_moving();
  return is_there;
}

// ---- pages that were never touched ----

namespace {

// What is known about the blocks of one length. Relaxed, here and below: values of several threads
// may mix; the worst result is a wrong guess.
//
//   n > 0    the next n blocks are assumed to be filled, without a check
//   n <= 0   the last -n blocks checked were sparse; from `sure` on, one in `looks_of_sure` is
//            checked
using Evidence = std::atomic<std::int32_t>;

constexpr std::int32_t filled_unseen = 15;
constexpr std::int32_t sure = -16;
constexpr std::int32_t looks_of_sure = 8;

constexpr std::size_t min_log = std::bit_width(min_sparse_pages) - 1;
constexpr std::size_t max_log = std::bit_width(max_sparse_pages) - 1;
constexpr std::size_t lengths = 2 * (max_log - min_log + 1);  // two per octave

constinit Evidence evidence[lengths] = {};

Evidence& evidence_of(std::size_t pages) noexcept {
  const std::size_t log = static_cast<std::size_t>(std::bit_width(pages)) - 1;
  return evidence[2 * (log - min_log) + (pages >> (log - 1) & 1)];
}

// Whether the program wrote to at most `at_most` of four pages of the range, one in each quarter.
// The range's last page is not tested, because a block may have a footer there.
bool is_untouched(const std::byte* begin, std::size_t bytes, std::size_t at_most) noexcept {
  return touched_pages(begin, bytes - page_bytes, 4) <= at_most;
}

bool is_sparse(const std::byte* begin, std::size_t bytes, Evidence& known) noexcept {
  const std::int32_t n = known.load(std::memory_order_relaxed);
  const bool looks = n >= sure && n <= 0;
  // Among sparse blocks, one touched page is tolerated: it may come from a block that began
  // elsewhere.
  const bool sparse = looks ? is_untouched(begin, bytes, n < 0 ? 1 : 0) : n <= 0;
  std::int32_t next = n <= sure - looks_of_sure + 1 ? sure : n - 1;
  if (looks && !sparse) next = n != 0 ? n / 2 : filled_unseen;
  known.store(next, std::memory_order_relaxed);
  return sparse;
}

}  // namespace

bool are_sparse(std::size_t pages) noexcept {
  return may_be_sparse(pages) && evidence_of(pages).load(std::memory_order_relaxed) < 0;
}

std::size_t discard_untouched(const Span& span) noexcept {
  const std::size_t pages = span.pages;
  if (!may_be_sparse(pages) || page_map.pages_per_os_page != 1) return pages;
  const std::size_t front = pages / 8;
  std::byte* const rest = memory_of(&span) + front * page_bytes;
  const std::size_t rest_bytes = (pages - front) * page_bytes;
  if (!is_sparse(rest, rest_bytes, evidence_of(pages))) return pages;
  return os::discard(rest, rest_bytes) ? front : pages;
}

}  // namespace ts::engine
