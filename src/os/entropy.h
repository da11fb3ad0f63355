// What a hardened heap asks of the system beside memory: numbers that nobody can guess, and pages
// that cannot be written to. Only the hardened library has it.
#pragma once

#include <cstddef>

namespace ts::os {

// Random bytes of the kernel; where it has none yet, or gives none, what there is of the process
// that others hardly know. Never waits, and keeps errno.
void fill_with_entropy(void* begin, std::size_t bytes) noexcept;

// From now on these committed pages may only be read; a wish.
void make_read_only(void* begin, std::size_t bytes) noexcept;

}  // namespace ts::os
