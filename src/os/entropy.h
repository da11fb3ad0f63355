// Requests of the hardened heap to the system beside memory: unguessable numbers, and read-only
// pages. Only the hardened library has them.
#pragma once

#include <cstddef>

namespace ts::os {

// Finds what fill_with_entropy() falls back on: to be called first, without a lock, since the C
// library knows it.
void find_entropy() noexcept;

// Random bytes of the kernel; where it has none yet, or gives none, numbers of the process that are
// hard to guess. Never waits, and keeps errno.
void fill_with_entropy(void* begin, std::size_t bytes) noexcept;

// Makes committed pages read-only, if the system agrees.
void make_read_only(void* begin, std::size_t bytes) noexcept;

}  // namespace ts::os
