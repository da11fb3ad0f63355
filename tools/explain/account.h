// Where the resident memory of a process is that has the engine in it.
//
// Why it exists: from the resident size alone, blocks of the program, free room beside them, memory
// that waits to go back, and what is not the allocator's look the same.
// What it refuses to do: call anything in the process. It reads while threads go on: each figure
// was true at some moment, and together they are exact for a process at rest.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/inspection.h"
#include "explain/process.h"

namespace ts {

// Bytes, resident unless a comment says otherwise.
struct Account {
  std::size_t resident = 0;  // of the whole process, by the kernel
  // The engine's memory
  std::size_t small = 0;    // the program's blocks in slabs
  std::size_t large = 0;    // and its large blocks
  std::size_t bins = 0;     // in cache bins and batches of threads
  std::size_t waiting = 0;  // freed by other threads, not collected yet
  std::size_t in_slabs = 0;
  std::size_t ended = 0;  // free, in slabs and bins of abandoned heaps
  std::size_t pages = 0;  // free spans, and span caches
  std::size_t tables = 0;
  // What is not the engine's
  std::size_t files = 0;
  std::size_t stacks = 0;
  std::size_t others = 0;
  // Not of memory
  std::size_t heaps = 0;
  std::size_t ended_heaps = 0;
  std::size_t live = 0;   // bytes of blocks of the program, resident or not
  std::size_t slabs = 0;  // how many
  std::size_t large_blocks = 0;
  std::size_t unclear = 0;  // pages that changed hands while they were read
  struct Class {
    std::size_t slab_bytes = 0;  // resident
    std::size_t used_bytes = 0;
  } classes[engine::class_count];

  std::size_t engine() const {
    return small + large + bins + waiting + in_slabs + ended + pages + tables;
  }
};

// What came of the search for an engine.
enum class Found : std::uint8_t {
  engine,
  none,
  unused,         // it has served nothing yet
  other_version,  // of which the structures differ
  unreadable,     // EPERM, or the process ended
};

// Fills an account. `process` is open.
Found take_account(Process& process, Account& account);

}  // namespace ts
