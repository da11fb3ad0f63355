// Findings about pointers and about memory, and their reports. In this library every misuse ends
// the process, a foreign pointer too, unless TSMALLOC_ON_MISUSE says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"

namespace ts::secure {

enum class Finding : std::uint8_t {
  sound,            // a block in use, and all is well
  foreign,          // not of our memory
  no_beginning,     // of our memory, but no block begins there
  not_in_use,       // a block that is free, or waits in the quarantine
  wrong_size,       // a sized free names another size
  overflow,         // a block in use, with a write behind its end
  write_after_free  // free memory that was written to
};

// Reports a misuse, and returns if the program is to go on. The caller holds no lock.
// `block_bytes` is 0 where nothing is known of it.
[[gnu::cold]] void report(Finding finding, FoundBy found_by, const void* where,
                          std::size_t block_bytes) noexcept;

}  // namespace ts::secure
