// Where the resident memory of a process is that has the engine in it.
//
// Why it exists: from the resident size alone, blocks of the program, free room beside them, memory
// that waits to go back, and what is not the allocator's look the same.
// What it refuses to do: call anything in the process. It reads while threads go on: each figure
// was true at some moment, and together they are exact for a process at rest.
#pragma once

#include <cstddef>
#include <cstdint>

#include "outside/engine_image.h"

namespace ts {

// Bytes; those of the engine's memory are resident, unless it is an account by tables.
struct Account {
  std::size_t resident = 0;  // of the whole process: the sum of these parts
  // The engine's memory
  std::size_t small = 0;    // the program's blocks in slabs
  std::size_t large = 0;    // and its large blocks
  std::size_t bins = 0;     // in cache bins and batches of threads
  std::size_t waiting = 0;  // freed by other threads, not collected yet
  std::size_t in_slabs = 0;
  std::size_t ended = 0;  // free, in slabs and bins of abandoned heaps
  std::size_t pages = 0;  // free spans, and span caches
  std::size_t ends = 0;   // of huge pages, in memory that no block has touched
  std::size_t tables = 0;
  // What is not the engine's
  std::size_t files = 0;
  std::size_t stacks = 0;
  std::size_t others = 0;
  // Not of this memory
  std::size_t peak = 0;  // of `resident`, by the kernel
  std::size_t heaps = 0;
  std::size_t ended_heaps = 0;
  std::size_t live = 0;   // bytes of blocks of the program, resident or not
  std::size_t slabs = 0;  // how many
  std::size_t large_blocks = 0;
  std::size_t unclear = 0;     // pages that changed hands while they were read
  std::size_t given_back = 0;  // bytes, since the start
  std::size_t growths = 0;     // since the start
  std::size_t limit = 0;       // in effect, as of HeapMeasures
  std::size_t hard_limit = 0;
  struct Class {
    std::size_t slab_bytes = 0;  // resident
    std::size_t used_bytes = 0;
  } classes[engine::class_count];

  std::size_t engine() const {
    return small + large + bins + waiting + in_slabs + ended + pages + ends + tables;
  }
};

// Whose word counts on which memory of the engine is there.
enum class By : std::uint8_t {
  kernel,  // what is resident
  tables,  // all that the engine has not given back: needs no look at pages, and is as ts_stats has it
};

// Fills an account of an engine that was found. False if the process has ended, or its memory is
// damaged.
bool take_account(Process& process, const EngineImage& image, By by, Account& account);

}  // namespace ts
