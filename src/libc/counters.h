// The reports of a counted library: counts of the process and of each of its threads, and pictures
// of its heap. They are files in the folder that TSMALLOC_COUNTERS names; docs/formats/counters.md
// has their form. It refuses to count anything (base/event_counts.h does), to allocate, and to
// write to the program's own streams; a report that cannot be written is missing.
#pragma once

#include "base/heap_like.h"
#include "base/heap_map.h"

namespace ts {

// The heap of the library, as the reports need it.
struct CountedHeap {
  const char* name;  // as the lab has it: "tsmalloc", or "lock-best"
  HeapMeasures (*measures)() noexcept;
  bool (*walk_map)(MapVisitor visit, void* argument) noexcept;
  bool walk_is_safe;  // while other threads are inside
};

// Called once, before any constructor, with the environment of the process: libc's own may not be
// there yet.
void begin_counting(const CountedHeap& heap, const char* const* environment) noexcept;

// A picture of the heap as it is now, under a name that the program gives.
void write_heap_map(const char* label) noexcept;

// Ends the process as _exit does, after a report of its counts.
[[noreturn]] void report_and_end_process(int status) noexcept;

// The file of write_heap_map alone; false if it could not be written.
bool write_map_file(const CountedHeap& heap, const char* label, const char* folder,
                    std::uint64_t process, std::uint64_t number) noexcept;

}  // namespace ts
