// Reads of the page table and of the list of mappings. One at a time, and a fork waits for it, so
// that no child inherits its file.
#pragma once

#include "os/mutex.h"
#include "os/os.h"

namespace ts::engine {

inline constinit Mutex page_table_lock;

inline std::size_t touched_pages(const std::byte* begin, std::size_t bytes,
                                 std::size_t looked_at) noexcept {
  const Guard guard{page_table_lock};
  return os::touched_pages(begin, bytes, looked_at);
}

inline bool has_half_of_mappings() noexcept {
  const Guard guard{page_table_lock};
  return os::has_half_of_mappings();
}

}  // namespace ts::engine
