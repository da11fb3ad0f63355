// Arenas: heaps that the program creates, whose blocks can be freed all at once. An arena is a heap
// like a thread's, with a number and slabs; arena_use.h says which thread uses it. All its slabs
// are in its queue of sparse slabs, and it has a list of its large blocks (arena_blocks.h).
//
// A destroyed arena's heap, as empty as a new one, is reused by the next arena.
#pragma once

#include "features/arenas/arena_use.h"

namespace ts::engine {

// Sizes in bytes.
struct ArenaUsage {
  std::size_t slab_bytes = 0;
  std::size_t large_bytes = 0;
  std::size_t used_bytes = 0;  // slabs and large blocks: in use
};

// Creates an empty arena; 0 if there is no memory.
ArenaHandle create_arena() noexcept;

// Frees all blocks of the arena; reset keeps the arena itself, destroy does not. 0; EBUSY if a
// thread uses it, even this one in its scope; EINVAL if the handle is not, or no longer, an
// arena's. Takes time proportional to its slabs and large blocks, and for purging their memory.
int reset_arena(ArenaHandle handle) noexcept;
int destroy_arena(ArenaHandle handle) noexcept;

// Measures an arena that is idle or used by the calling thread. Errors as above.
int measure_arena(ArenaHandle handle, ArenaUsage& usage) noexcept;

}  // namespace ts::engine
