// Which thread uses an arena. One at a time does: is in its scope, or is inside of one of its
// functions. `user` says which: it has the address of that thread's own heap, or one of the marks
// below. The thread that changes it from the idle mark is to the arena what an owner is to its
// heap, until it stores the mark again (release). The next one sees all changes (acquire). Other
// threads send frees, and reclaim, as from any heap (remote_frees.h, reclaim.h).
//
// The idle mark has the arena's generation, as handles have. So one compare-and-swap claims the
// arena and looks at the handle. A stale one changes nothing, and is in no other thread's way.
//
// A free() of an arena's block is over when it returns (release_to_arena() in thread_heap.cpp). So
// where the program has ordered its frees before the arena's end, no other thread has a block of it
// in a batch or in a bin. Nor has the arena's heap batches, or blocks of others in its bins: for
// what a thread frees in a scope that is not the arena's, it steps out of the scope (OutOfScope).
#pragma once

#include "core/current_heap.h"
#include "core/page_map.h"
#include "os/mutex.h"

namespace ts::engine {

// What the program knows of an arena: number (20 bits), and generation, which changes when the
// arena is destroyed. 0 is none.
using ArenaHandle = std::uintptr_t;
inline constexpr unsigned generation_shift = 20;

inline ArenaHandle arena_number(ArenaHandle handle) noexcept {
  return handle & ((ArenaHandle{1} << generation_shift) - 1);
}

// The free arenas, and lists of large blocks. A thread that maintains an arena has it, too.
inline constinit Mutex arenas_lock;

// Marks of `user` that are no heap's address: a thread maintains the arena, under arenas_lock; its
// user is a thread that the child of a fork lacks, cut off in the middle of a change.
inline constexpr std::uintptr_t maintained = 1;
inline constexpr std::uintptr_t lost = 3;

// The mark of an arena of such a handle that no thread uses.
inline std::uintptr_t idle_mark_of(ArenaHandle handle) noexcept {
  return handle >> generation_shift << 2 | idle_bits;
}

// The heap that may be the arena's: to be claimed before it is looked at. Null if no arena can have
// this handle.
ThreadHeap* arena_of(ArenaHandle handle) noexcept;

// Makes a thread's heap the arena's user: 0; EBUSY if it has another; EINVAL if the handle is no
// arena's, or not any more. Waits for a maintainer.
int claim_arena(ThreadHeap& arena, ArenaHandle handle, const HeapFront* user) noexcept;
inline void unclaim_arena(ThreadHeap& arena) noexcept {
  // relaxed: this thread's own, or the one that its claim has acquired
  const std::uintptr_t idle = arena.idle_mark.load(std::memory_order_relaxed);
  arena.user.store(idle, std::memory_order_release);  // pairs with the claim of the next user
}

// Whether the calling thread, which has a heap, is the arena's user.
inline bool is_user(const ThreadHeap& arena) noexcept {
  // relaxed: this thread's own store, if any
  return has_heap() && arena.user.load(std::memory_order_relaxed) == address_of(threads_heap());
}

// Calls `visit(arena)` for each arena that exists or existed.
template <class Visit>
void for_each_arena(Visit visit) noexcept {
  for_each_heap([&](ThreadHeap& heap) {
    // relaxed: the visitor looks at hints, or claims the arena
    if (heap.user.load(std::memory_order_relaxed) != 0) visit(heap);
  });
}

}  // namespace ts::engine
