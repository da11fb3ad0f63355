// What only the hardened heap needs from the kernel besides memory: random numbers and read-only
// pages.
#pragma once

#include <cstddef>

namespace ts::os {

// Looks up what fill_with_entropy() falls back on. Call it first, without a lock, since it calls
// the C library.
void find_entropy() noexcept;

// Fills memory with random bytes from the kernel; if that has none yet or refuses, with values of
// the process that are hard to guess. Never waits; keeps errno.
void fill_with_entropy(void* begin, std::size_t bytes) noexcept;

// Makes committed pages read-only, if the kernel agrees.
void make_read_only(void* begin, std::size_t bytes) noexcept;

}  // namespace ts::os
