// Arenas: heaps of the program's own, whose blocks can be freed all at once. An arena is a heap as
// a thread's is, with a number and slabs; arena_use.h says which thread uses it. Beside its slabs,
// which are in its queue of sparse slabs, it has a list of its large blocks (arena_blocks.h).
//
// A destroyed arena's heap, empty as a new one, waits for the next arena.
#pragma once

#include "features/arenas/arena_use.h"

namespace ts::engine {

// Sizes in bytes.
struct ArenaUsage {
  std::size_t slab_bytes = 0;
  std::size_t large_bytes = 0;
  std::size_t used_bytes = 0;  // of both: what blocks in use have
};

// An arena without a block; 0 without memory.
ArenaHandle create_arena() noexcept;

// Frees all blocks of the arena, which stays; or frees it, too. 0; EBUSY if a thread uses it, also
// if this one is in its scope; EINVAL if the handle is no arena's, or not any more. Time: its
// slabs and large blocks, and what it takes to give their memory back.
int reset_arena(ArenaHandle handle) noexcept;
int destroy_arena(ArenaHandle handle) noexcept;

// Measures an arena that is idle, or used by the calling thread. Errors as above.
int measure_arena(ArenaHandle handle, ArenaUsage& usage) noexcept;

}  // namespace ts::engine
