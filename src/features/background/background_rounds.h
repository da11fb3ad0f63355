// What a background thread does, in rounds of 200 ms and slices of work (background_thread.h).
#pragma once

namespace ts::engine {

// Nothing is due until the page heap has more dirty memory.
inline constexpr int none_is_due = -1;

// A slice of work, or the end of a round. Returns in how many milliseconds another is due, or
// none_is_due; nothing is done while another thread is at it. Without a lock or a hold.
int do_background_work() noexcept;

// Whether the background thread may rest until it is woken (PageHeap::may_rest).
bool may_rest() noexcept;
// At the end of a rest: what was idle before is no evidence.
void begin_rounds() noexcept;

// In the child of a fork, under all locks.
void forget_rounds() noexcept;

}  // namespace ts::engine
