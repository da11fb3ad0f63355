// How much memory the process has: what an allocator keeps from the system is one of its two costs.
// smaps_rollup walks the page tables; the kernel's counters may be off by some hundred kilobytes.
#pragma once

#include <cstdint>

namespace ts::replay {

struct Memory {
  std::int64_t resident = 0;   // anonymous bytes, without replay's own
  std::int64_t lazy_free = 0;  // the part returned by MADV_FREE and not yet taken
};

Memory memory_now();
std::int64_t peak_rss_bytes();    // of the whole process, at its peak
const char* name_of_allocator();  // base name of the library that contains malloc

}  // namespace ts::replay
