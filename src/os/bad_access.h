// Guard pages: making memory inaccessible, and a handler for accesses to it.
#pragma once

#include <cstddef>

namespace ts::os {

// Discards committed pages and makes them inaccessible until they are committed again. If it
// returns false, the contents may be lost. Seen by others (os.h).
bool protect(void* begin, std::size_t bytes) noexcept;
// Makes committed pages inaccessible but keeps their contents. A protect() that follows may then
// fail without harm.
bool make_inaccessible(void* begin, std::size_t bytes) noexcept;

// Calls `look(address)` on SIGSEGV, before the process's own handler, until the program replaces
// the handler. Calls sigaction(), so the caller must hold no lock.
void call_at_bad_access(void (*look)(const void* address)) noexcept;

}  // namespace ts::os
