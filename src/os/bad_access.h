// System calls for guard pages: memory that may not be touched, and a handler of accesses to it.
#pragma once

#include <cstddef>

namespace ts::os {

// Takes the memory of committed pages away, for good or until they are committed again: to touch
// them is an error. False: they may have lost their contents. Seen by others (os.h).
bool protect(void* begin, std::size_t bytes) noexcept;
// To touch committed pages is an error from now on; their contents are kept. To be followed by
// protect(), which may fail then without harm.
bool make_inaccessible(void* begin, std::size_t bytes) noexcept;

// Calls `look(address)` in the handler of SIGSEGV, ahead of the handler that the process had. If
// the program replaces the handler, no call follows. Calls sigaction(): the caller has no lock.
void call_at_bad_access(void (*look)(const void* address)) noexcept;

}  // namespace ts::os
