// Free memory of the hardened heap is zero, and is compared with it before a program gets it.
#pragma once

#include <cstddef>

namespace ts::secure {

// Whether all bytes are zero; `bytes` is a multiple of 8.
bool is_zero(const std::byte* begin, std::size_t bytes) noexcept;

}  // namespace ts::secure
