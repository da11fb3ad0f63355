// Memory limits. Before touching fresh memory, a thread compares what is used with them.
//
// - The soft limit never refuses. Above it, memory that threads left behind is freed and all dirty
//   memory is purged first, and nothing requests huge pages. `auto` is 90% of the smallest limit of
//   the control groups (os/cgroup.h); it is compared with the usage of that group, which includes
//   other processes and file pages that stay. A limit in bytes is compared with the pages that the
//   page heap has touched. A block counts as touched once it is handed out.
// - Above the hard limit, the page heap hands out no fresh memory: malloc fails.
//
//   allocate_span, resize_large, move_large -> hooks::before_growth -> prepare_growth
//       -> look, occasionally -> give_back
//   PageHeap::take -> over the hard limit -> hooks::growth_refused
//   out_of_memory -> explain_refusal
//
// A check comes after 64 MiB of fresh memory, and after each doubling, but at least every 256 MiB;
// above half of the soft limit, after each 2 MiB. Before the first one, no system call is made
// unless an option sets a limit. One thread checks at a time; others continue.
#pragma once

#include <atomic>

#include "core/types.h"

namespace ts::engine {

// Values as in `tsmalloc.h`, used as bits.
enum class LimitEvent : std::uint32_t { soft = 1, hard = 2 };

namespace limits {

constexpr std::size_t first_look_pages = (std::size_t{64} << 20) / page_bytes;

// How many fresh pages are left until the next check. relaxed: a count, and no data depends on it.
inline constinit std::atomic<std::int64_t> fresh_left{first_look_pages};

// Checks the limits, and purges what must go before `pages` are touched.
[[gnu::cold]] void look(std::size_t pages) noexcept;

}  // namespace limits

// To be called before `pages` may be touched for the first time; without a lock or a hold.
inline void prepare_growth(std::size_t pages) noexcept {
  const auto count = static_cast<std::int64_t>(pages);
  if (limits::fresh_left.fetch_sub(count, std::memory_order_relaxed) <= count) [[unlikely]]
    limits::look(pages);
}

// Likewise, for a background thread's round, which touches nothing.
void look_at_limits() noexcept;

// To be called, anywhere, when the options may have changed: the next growth checks the limits.
void follow_limit_options() noexcept;

// From now on calls `handler(event, bytes)`, or nothing if it is null, when the soft limit is
// exceeded, at most once a minute, and when the hard one refuses. `bytes` is how much was in use
// then.
using LimitHandler = void(int event, std::size_t bytes);
void set_limit_handler(LimitHandler* handler) noexcept;
// Calls the handler if an event is due. To be called in malloc, without a lock or a hold.
void deliver_limit_events() noexcept;

// In the child of a fork: ends a check, and a call of the handler, by another thread.
void forget_looks() noexcept;

}  // namespace ts::engine
