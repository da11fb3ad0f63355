// Shared by the targets of heaps that exist once per process: each input frees all memory, and
// starts with the heap as earlier inputs left it.
#pragma once

#include "fuzz/play.h"

namespace ts::fuzz {

// A walk need not reach everything in use.
struct ProcessHeapChecks {
  static bool is_apart(const void*) { return false; }
  static void measures(const HeapMeasures& told, const Walked& walked) {
    require(told.free_bytes <= told.segment_bytes, "more is free than there is");
    require(told.cached_bytes <= told.free_bytes, "more is cached than is free");
    require(told.segment_bytes - told.free_bytes >= walked.used_bytes,
            "less is in use than is held");
  }
  static void end(const HeapMeasures& told, const Walked& walked) {
    require(walked.used_blocks == 0, "a block is in use that nobody holds");
    require(told.free_bytes == told.segment_bytes, "not all memory is free in the end");
  }
};

// Before anything is refused, the heap chooses its place in the address space, and makes its key.
template <class Heap>
void make_ready(LibcRules<Heap>& allocator) {
  catch_system_calls();
  allocator.free(allocator.malloc(1));
  Seats::make_key();
}

}  // namespace ts::fuzz
