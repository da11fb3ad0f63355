// Applies options that change while the process runs.
#pragma once

namespace ts::engine {

// To be called, anywhere, when an option may have changed: takes no lock and starts no thread.
// Limits apply from the next growth on, `TSMALLOC_THP=never` to all memory at once; what takes a
// lock or starts a thread waits for attention (core/attention.h).
void follow_options_soon() noexcept;

// Applies all of it at once, in a call of the program, without a lock or a hold.
void follow_options() noexcept;

}  // namespace ts::engine
