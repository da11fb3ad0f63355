// What replay's line says of the schedule: ticks, shares, meters.
//
// Why it exists: shares are only worth having if what a thread got can be held against what it was
// owed. What it refuses to do: compute. The schedule has counted.
#pragma once

#include <cstdint>

#include "common/json_line.h"
#include "replay/schedule/schedule.h"

namespace ts::replay {

inline constexpr std::uint32_t most_reported_shares = 1000;

// Writes `ticks`, `shares` and `meters`; nulls without a schedule.
//
// ended: Share[threads], zero where a thread has not ended, or never began: whoever removes a
// thread puts there what remove() returns. changes: what was given to log_to(), or null.
void report_schedule(JsonLine& line, const Schedule* schedule, const Share* ended,
                     std::uint32_t threads, const MeterChange* changes);

}  // namespace ts::replay
