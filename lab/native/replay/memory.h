// How much memory the process has, and how much of it the allocator says that it holds.
//
// What an allocator keeps from the system is one of its two prices. smaps_rollup walks the page
// tables, where the kernel's counters may be off by some hundred kilobytes.
#pragma once

#include <cstdint>

namespace ts::replay {

struct Memory {
  std::int64_t resident = 0;         // anonymous bytes, without replay's own
  std::int64_t lazy_free = 0;        // of them, given back by MADV_FREE and not yet taken
  std::int64_t allocator = -1;       // mallinfo2: bytes got from the system; -1: it has none
  std::int64_t allocator_used = -1;  // mallinfo2: bytes in blocks in use
};

Memory resident_now();            // without the allocator's own figures
Memory memory_now();              // with them
std::int64_t peak_rss_bytes();    // of the whole process, ever
const char* name_of_allocator();  // base name of the library that malloc is from

}  // namespace ts::replay
