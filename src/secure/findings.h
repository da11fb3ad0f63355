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
  underflow,        // the same before its beginning: the end of the slot there is damaged
  write_after_free  // free memory that was written to
};

// Whether a block in use begins there, and the memory around it was written to.
constexpr bool is_damage(Finding finding) noexcept {
  return finding == Finding::overflow || finding == Finding::underflow;
}

// Reports a misuse, and returns if the program is to go on. The caller holds no lock.
// `block_bytes` is 0 where nothing is known of it.
[[gnu::cold]] void report(Finding finding, FoundBy found_by, const void* where,
                          std::size_t block_bytes) noexcept;

// What the blocks in use come to, and the first damage found among them and in free memory.
struct Left {
  std::size_t blocks = 0;
  std::size_t bytes = 0;  // that were asked for
  Finding finding = Finding::sound;
  const std::byte* where = nullptr;
  std::size_t most_bytes = 0;  // that a block there can have
};

}  // namespace ts::secure
