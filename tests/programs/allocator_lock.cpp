// Over ts_malloc_lock and ts_free_lock.
#include "programs/allocator.h"
#include "tsmalloc/classic.h"

namespace ts::test {

const char* const allocator_name = "ts_malloc_lock";

void prepare_allocator() { settle_libc_break(); }

// Always by exactly what is missing.
bool set_growth(std::size_t) { return false; }

void* allocate(std::size_t bytes) { return ts_malloc_lock(bytes); }

void release(void* block) { ts_free_lock(block); }

// The functions of the reports do not count their calls of sbrk.
SegmentFigures segment_figures() {
  return {ts_data_segment_size(), ts_data_segment_free_space_size(), {}};
}

}  // namespace ts::test
