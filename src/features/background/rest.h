// The background thread's rest: when it may begin, and what ends it.
//
// A rest begins with a store of `resting`, and only then looks for work. Whatever makes work, a
// release that leaves much dirty memory, frees that stay uncollected, or an option, first stores
// that it did, and then `awake`. So either the work is found before the rest, or the rest ends.
#pragma once

#include "base/atomic.h"

namespace ts::engine {

// While a background thread is attached, it completes the purges that releases begin.
void attach_background_thread() noexcept;
void detach_background_thread() noexcept;
bool has_background_thread() noexcept;

// Whether much memory is dirty, unless the thread `gives_up` on it, or many frees are uncollected.
bool has_work(bool gives_up) noexcept;
// True if there is no work; then rest() waits until the thread is woken.
bool may_rest(bool gives_up) noexcept;
bool is_resting() noexcept;
void rest() noexcept;
// The same, for a limited time.
void rest_for(std::uint32_t milliseconds) noexcept;
// Waits for that time, or until the background thread may rest.
void wait_for_round(std::uint32_t milliseconds) noexcept;
// Ends its rest. May be called anywhere, since it takes no lock.
void wake_background_thread() noexcept;

// Whether so many frees stay uncollected (hooks::frees_stay_uncollected) that a rest has to wait
// for them. take_uncollected() also resets the count.
bool has_uncollected() noexcept;
bool take_uncollected() noexcept;

// In the child of a fork, which has no background thread.
void forget_rest() noexcept;

}  // namespace ts::engine
