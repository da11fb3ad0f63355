// A mixed workload, of which every piece is checked, run again and again in a process of its own,
// each time with another call of the system failing: the first, the second, and so on; alone, with
// the one after it, and with all after it. Afterwards nothing may be damaged, and the heap must
// work again and be sound. It refuses to know whose heap it is.
#pragma once

#include <cstddef>

#include "reliability/faults/system_calls.h"

namespace ts::faults {

// The allocator that is tested. All may be called from any thread.
struct Target {
  const char* name;
  bool keeps_errno;          // also when it succeeds, which only tsmalloc promises
  bool (*open)() = nullptr;  // false if it could not be made, for want of memory
  void* (*allocate)(std::size_t bytes);
  void* (*allocate_zeroed)(std::size_t bytes);
  void* (*allocate_aligned)(std::size_t alignment, std::size_t bytes);
  void* (*resize)(void* block, std::size_t bytes);
  void (*release)(void* block);
  void (*trim)();
  std::size_t (*bytes_in_use)();  // SIZE_MAX where they are not counted
  bool (*is_sound)() = nullptr;
  // More to be tried while calls fail. It leaves nothing behind; null, or what is wrong.
  const char* (*try_more)() = nullptr;
};

struct Effort {
  bool must_refuse;             // else nothing is proved: it can have memory from the system alone
  std::size_t calls_per_world;  // that fail in their turn, about; SIZE_MAX: each
};

// 0, or 1 after the first failures, which were told; where the system cannot make calls by
// instruction fail (an emulator), only those by name do.
int run_drill(const Target& target, const World* worlds, std::size_t world_count,
              const Effort& effort);

// Whether the only argument is --long; other arguments end the process, with the usage.
bool is_long(int argc, char** argv);

// One run, in this process, whose calls were armed before; ends the process with status 0, or 1
// after it told what is wrong.
[[noreturn]] void run_armed(const Target& target);

}  // namespace ts::faults
