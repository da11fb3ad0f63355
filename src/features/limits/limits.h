// Limits of memory. Before fresh memory is touched, a thread weighs what is used against them.
//
// - The soft limit never refuses. Above it, what threads left behind and all dirty memory go back
// to
//   the system first, and nothing asks for huge pages. `auto` is 90 % of the smallest limit of the
//   control groups (os/cgroup.h), and what their group uses counts; so do other processes in
//   it, and file pages that stay. Of a limit in bytes, the pages count that the page heap has
//   touched. A block counts as touched once it is handed out.
// - Above the hard limit, the page heap hands out no fresh memory: malloc fails.
//
//   allocate_span, resize_large, move_large -> hooks::before_growth -> prepare_growth -> look, now and then -> give back
//   PageHeap::take -> is beyond the hard limit -> hooks::growth_refused;  out_of_memory -> explain it
//
// Now and then is after 64 MiB of fresh memory, and after each doubling, 256 MiB at most; above
// half of the soft limit, after each 2 MiB. No system call is made before, unless an option names a
// limit. One thread looks at a time, others go on.
#pragma once

#include <atomic>

#include "core/types.h"

namespace ts::engine {

// As `tsmalloc.h` has them, and bits.
enum class LimitEvent : std::uint32_t { soft = 1, hard = 2 };

namespace limits {

constexpr std::size_t first_look_pages = (std::size_t{64} << 20) / page_bytes;

// So many fresh pages until the next look. relaxed: a count, and no data depends on it.
inline constinit std::atomic<std::int64_t> fresh_left{first_look_pages};

// Looks, and gives back what has to go before so many pages are touched.
[[gnu::cold]] void look(std::size_t pages) noexcept;

}  // namespace limits

// To be called before so many pages are touched for the first time, or perhaps not; without a lock
// or a hold.
inline void prepare_growth(std::size_t pages) noexcept {
  const auto count = static_cast<std::int64_t>(pages);
  if (limits::fresh_left.fetch_sub(count, std::memory_order_relaxed) <= count) [[unlikely]]
    limits::look(pages);
}

// The same as prepare_growth for a background thread's round, which touches nothing.
void look_at_limits() noexcept;

// To be called when the options may have changed, anywhere: the next growth looks.
void follow_limit_options() noexcept;

// Calls `handler(event, bytes)` from now on, null for none, when the soft limit is passed, once a
// minute at most, and when the hard one refuses. `bytes` were in use then.
using LimitHandler = void(int event, std::size_t bytes);
void set_limit_handler(LimitHandler* handler) noexcept;
// Calls it if it is due; to be called in malloc, without a lock or a hold.
void deliver_limit_events() noexcept;

// In the child of a fork: a look, and a call of the handler, are over.
void forget_looks() noexcept;

}  // namespace ts::engine
