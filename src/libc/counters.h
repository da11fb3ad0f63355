// Reports of an instrumented build: counts of the process and each of its threads, and pictures of
// its heap, as files in the folder named by TSMALLOC_COUNTERS (format: docs/formats/counters.md).
// The counting itself is in base/event_counts.h. Nothing here allocates or writes to the program's
// own streams; a report that cannot be written is left out.
#pragma once

#include "base/heap_like.h"
#include "base/heap_map.h"

namespace ts {

// What the reports need from the library's heap.
struct CountedHeap {
  const char* name;  // the lab's name: "tsmalloc", or "lock-best"
  HeapMeasures (*measures)() noexcept;
  bool (*walk_map)(MapVisitor visit, void* argument) noexcept;
  bool walk_is_safe;  // even while other threads are inside
};

// Called once, before any constructor, with the environment of the process: libc's own may not be
// set up yet.
void begin_counting(const CountedHeap& heap, const char* const* environment) noexcept;

// Writes a picture of the current heap, under a label chosen by the program.
void write_heap_map(const char* label) noexcept;

// Reports the counts and ends the process like _exit.
[[noreturn]] void report_and_end_process(int status) noexcept;

// Writes just the file of write_heap_map; false on failure.
bool write_map_file(const CountedHeap& heap, const char* label, const char* folder,
                    std::uint64_t process, std::uint64_t number) noexcept;

}  // namespace ts
