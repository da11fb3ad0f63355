// How much memory the process has.
//
// What an allocator keeps from the system is one of its two prices. smaps_rollup walks the page
// tables, where the kernel's counters may be off by some hundred kilobytes.
#pragma once

#include <cstdint>

namespace ts::replay {

struct Memory {
  std::int64_t resident = 0;   // anonymous bytes, without replay's own
  std::int64_t lazy_free = 0;  // of them, given back by MADV_FREE and not yet taken
};

Memory memory_now();
std::int64_t peak_rss_bytes();    // of the whole process, ever
const char* name_of_allocator();  // base name of the library that malloc is from

}  // namespace ts::replay
