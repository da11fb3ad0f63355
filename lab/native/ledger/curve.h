// Live bytes and blocks now, at their peak, and over time.
//
// Why it exists: a peak in resident memory says little without what the program really had in use at
// that moment. What it refuses to do: average, or run a clock of its own. It looks at the time when
// something is allocated or freed, which is the only time when something changes.
#pragma once

#include <cstdint>

#include "ledger/record.h"

namespace ts {

// The record begins: its curve is empty, and its peak is what is live. Nobody else may be in here,
// except in a first record, when others may be counting already.
void begin_curve(LedgerRecord& record);

// Negative numbers, as two's complements, for what is freed.
void change_live(LedgerRecord& record, std::uint64_t bytes, std::uint64_t blocks);

}  // namespace ts
