#include "engine/sparse_blocks.h"

#include <atomic>
#include <bit>

#include "engine/page_map.h"
#include "engine/touched_pages.h"
#include "os/os.h"

namespace ts::engine {
namespace {

// What is known of the blocks of one length. Relaxed, here and below: values of several threads may
// mix, and the worst of it is a wrong guess.
//
//   n > 0    so many are taken as filled before the next look
//   n <= 0   -n were sparse in a row, by a look at each; from `sure` on, by one in `looks_of_sure`
using Evidence = std::atomic<std::int32_t>;

constexpr std::int32_t filled_unseen = 15;
constexpr std::int32_t sure = -16;
constexpr std::int32_t looks_of_sure = 8;

constexpr std::size_t min_log = std::bit_width(min_sparse_pages) - 1;
constexpr std::size_t max_log = std::bit_width(max_sparse_pages) - 1;
constexpr std::size_t lengths = 2 * (max_log - min_log + 1);  // half octaves

constinit Evidence evidence[lengths] = {};

Evidence& evidence_of(std::size_t pages) noexcept {
  const std::size_t log = static_cast<std::size_t>(std::bit_width(pages)) - 1;
  return evidence[2 * (log - min_log) + (pages >> (log - 1) & 1)];
}

// Whether the program wrote to at most so many of four pages of the range, one in each quarter. The
// range's last page is none of them, where a block may have a footer.
bool is_untouched(const std::byte* begin, std::size_t bytes, std::size_t at_most) noexcept {
  return touched_pages(begin, bytes - page_bytes, 4) <= at_most;
}

bool is_sparse(const std::byte* begin, std::size_t bytes, Evidence& known) noexcept {
  const std::int32_t n = known.load(std::memory_order_relaxed);
  const bool looks = n >= sure && n <= 0;
  // Among sparse blocks, one touched page may be from a block that began elsewhere.
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
