// A mixed workload with every piece checked, run again and again in a process of its own, each time
// with another system call failing: the first, the second, and so on; only that one, with the next
// one, or with all later ones. Afterwards nothing may be damaged, and the heap must work again and
// be sound. It works with any heap.
#pragma once

#include <cstddef>

#include "reliability/faults/system_calls.h"

namespace ts::faults {

// The allocator under test. All functions can be called from any thread.
struct Target {
  const char* name;
  bool keeps_errno;          // also when it succeeds, which only tsmalloc promises
  bool (*open)() = nullptr;  // false if it could not be made for lack of memory
  void* (*allocate)(std::size_t bytes);
  void* (*allocate_zeroed)(std::size_t bytes);
  void* (*allocate_aligned)(std::size_t alignment, std::size_t bytes);
  void* (*resize)(void* block, std::size_t bytes);
  void (*release)(void* block);
  void (*trim)();
  std::size_t (*bytes_in_use)();  // SIZE_MAX where they are not counted
  bool (*is_sound)() = nullptr;
  // More to try while calls fail. It leaves nothing behind; returns null, or what is wrong.
  const char* (*try_more)() = nullptr;
};

struct Effort {
  bool must_refuse;  // otherwise the test proves nothing: memory can come only from the system
  std::size_t calls_per_world;  // approximately how many fail in turn; SIZE_MAX: each
};

// 0, or 1 after the first failures, which are printed. Where calls made by instruction cannot be
// made to fail (an emulator), only those made by name do.
int run_drill(const Target& target, const World* worlds, std::size_t world_count,
              const Effort& effort);

// Whether the only argument is --long; other arguments print the usage and end the process.
bool is_long(int argc, char** argv);

// One run, in this process, with its calls already armed. Ends the process with status 0, or with 1
// after reporting what is wrong.
[[noreturn]] void run_armed(const Target& target);

}  // namespace ts::faults
