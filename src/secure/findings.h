// What is found about pointers and memory, and how it is reported. In this library every misuse
// aborts, invalid pointers included, unless TSMALLOC_ON_MISUSE says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"

namespace ts::secure {

enum class Finding : std::uint8_t {
  sound,         // a block in use, undamaged
  foreign,       // not allocated by tsmalloc
  no_beginning,  // in our memory, but not the start of a block
  not_in_use,    // free, or in the quarantine
  wrong_size,    // a sized free names a different size
  overflow,      // block in use, written past its end
  underflow,     // block in use, written before its start: the tail of the slot before is damaged
  write_after_free  // free memory was written to
};

// True if a block in use begins there and the memory around it was overwritten.
constexpr bool is_damage(Finding finding) noexcept {
  return finding == Finding::overflow || finding == Finding::underflow;
}

// Reports a misuse; returns if the program is to keep running. The caller holds no lock.
// `block_bytes` is 0 if unknown.
[[gnu::cold]] void report(Finding finding, FoundBy found_by, const void* where,
                          std::size_t block_bytes) noexcept;

// Totals of the blocks in use, and the first damage found in them or in free memory.
struct Left {
  std::size_t blocks = 0;
  std::size_t bytes = 0;  // as requested
  Finding finding = Finding::sound;
  const std::byte* where = nullptr;
  std::size_t most_bytes = 0;  // capacity of the block at `where`
};

}  // namespace ts::secure
