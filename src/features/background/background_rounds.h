// The background thread's work, in rounds of 200 ms and slices (background_thread.h).
#pragma once

namespace ts::engine {

// There is nothing to do until the page heap has more dirty memory.
inline constexpr int none_is_due = -1;

// Does a slice of work, or ends a round. Returns in how many milliseconds to call it again, or
// none_is_due; does nothing while another thread works. Without a lock or a hold.
int do_background_work() noexcept;

// Whether the background thread may rest (rest.h).
bool may_rest_between_rounds() noexcept;
// To be called at the end of a rest, so that what was idle before does not count.
void begin_rounds() noexcept;

// In the child of a fork, under all locks.
void forget_rounds() noexcept;

}  // namespace ts::engine
