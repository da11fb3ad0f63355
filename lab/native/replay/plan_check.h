// Whether a plan makes sense: all of its operations, in the recorded order.
//
// Why it exists: replay runs a plan without looking, so that a replay's time is the allocator's; a
// damaged plan would free what is not there, or wait for ever. What it refuses to do: accept what
// it cannot prove. It walks through the recorded order and finds each operation able to run when it
// comes: its turn is there, its epochs are done, its thread has started. So that order keeps all
// the plan's orders, they contain no circle, and under any schedule some thread can go on until all
// have ended. It proves likewise that operations on one slot by two threads are ordered by a turn
// or by an epoch, and that the plan's sums are right.
#pragma once

#include "replay/plan_view.h"

namespace ts::replay {

// Checks the first image, and all that are forked from it. False: `problem` says what is wrong.
[[nodiscard]] bool check_plan(const plan::View& view, plan::Problem& problem);

}  // namespace ts::replay
