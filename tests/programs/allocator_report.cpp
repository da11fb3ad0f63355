// Implements allocator.h over one of the pairs of functions of the source reports, chosen by CMake:
// TS_MALLOC and TS_FREE.
#include "programs/allocator.h"
#include "tsmalloc/classic.h"

namespace ts::test {

const char* const allocator_name = TS_MALLOC_NAME;

void prepare_allocator() { settle_libc_break(); }

// Always grows by exactly what is missing.
bool set_growth(std::size_t) { return false; }

void* allocate(std::size_t bytes) { return TS_MALLOC(bytes); }

void release(void* block) { TS_FREE(block); }

// The functions of the reports do not count their calls of sbrk.
SegmentFigures segment_figures() {
  return {ts_data_segment_size(), ts_data_segment_free_space_size(), {}};
}

}  // namespace ts::test
