// Requests of the hardened heap to the system beside memory: unguessable numbers, and read-only
// pages. Only the hardened library has them.
#pragma once

#include <cstddef>

namespace ts::os {

// Random bytes of the kernel; where it has none yet, or gives none, numbers of the process that are
// hard to guess. Never waits, and keeps errno.
void fill_with_entropy(void* begin, std::size_t bytes) noexcept;

// Makes committed pages read-only, if the system agrees.
void make_read_only(void* begin, std::size_t bytes) noexcept;

}  // namespace ts::os
