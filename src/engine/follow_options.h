// What follows from options that change while the process runs.
#pragma once

namespace ts::engine {

// To be called when an option may have changed, anywhere: it takes no lock and starts no thread.
// Limits count from the next growth on, `TSMALLOC_THP=never` for all memory at once; what takes a
// lock or starts a thread waits for attention (core/attention.h).
void follow_options_soon() noexcept;

// The same in a call of the program, without a lock or a hold: all of it at once.
void follow_options() noexcept;

}  // namespace ts::engine
