// Checks the invariants of types.h, by debug level:
//
//   1  where a structure changes hands: check() in the structures' own files, and a whole heap when
//      a thread attaches or abandons it
//   2  occasionally at the end of a slow path: the calling thread's heap, and all spans
//   3  the same at the end of every slow path, up to 16 MiB of pages; with more memory, only often
//      enough to take a fixed share of the time
//
// At levels 2 and 3, a process with one thread has its whole engine checked. A violation aborts the
// program and names the invariant. At level 0, no check is compiled into the library.
#pragma once

#include "base/fault.h"
#include "core/heap_hold.h"

namespace ts::engine {

// Checks the whole engine at rest: the page heap, all heaps, whether they agree, and the page map.
// No other thread may be in the engine.
Fault find_engine_fault() noexcept;

// To be called at the end of slow paths.
void check_slow_path(ThreadHeap& heap) noexcept TS_REQUIRES(heap);

}  // namespace ts::engine
