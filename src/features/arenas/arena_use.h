// Which thread uses an arena. Only one does at a time: it is in the arena's scope, or inside one of
// the arena's functions. `user` holds the address of that thread's own heap, or one of the marks
// below. The thread that changes it from the idle mark acts as the owner of the arena's heap, until
// it stores the mark again (release). The next one sees all changes (acquire). Other threads send
// frees and reclaim as with any heap (remote_frees.h, reclaim.h).
//
// The idle mark contains the arena's generation, as handles do. So one compare-and-swap both claims
// the arena and validates the handle. A stale handle changes nothing and blocks no other thread.
//
// A free() of an arena's block is complete when it returns (release_to_arena() in thread_heap.cpp).
// So if the program orders its frees before the arena's end, no other thread has a block of it in a
// batch or in a bin. The arena's heap in turn has no batches, and no blocks of other heaps in its
// bins: to free other blocks, a thread steps out of the scope (OutOfScope).
#pragma once

#include "core/current_heap.h"
#include "core/page_map.h"
#include "os/mutex.h"

namespace ts::engine {

// A program's handle of an arena: number (20 bits), and generation, which changes when the arena is
// destroyed. 0 is none.
using ArenaHandle = std::uintptr_t;
inline constexpr unsigned generation_shift = 20;

inline ArenaHandle arena_number(ArenaHandle handle) noexcept {
  return handle & ((ArenaHandle{1} << generation_shift) - 1);
}

// Guards the free arenas and the lists of large blocks. A thread that maintains an arena also holds
// it.
inline constinit Mutex arenas_lock;

// Marks in `user` that are not a heap's address. A thread maintains the arena, under arenas_lock;
// or the arena's user is a thread that the child of a fork lacks, interrupted in the middle of a
// change.
inline constexpr std::uintptr_t maintained = 1;
inline constexpr std::uintptr_t lost = 3;

// The mark of an idle arena that has this handle.
inline std::uintptr_t idle_mark_of(ArenaHandle handle) noexcept {
  return handle >> generation_shift << 2 | idle_bits;
}

// The heap that may be the arena's; it must be claimed before it is read. Null if no arena can have
// this handle.
ThreadHeap* arena_of(ArenaHandle handle) noexcept;

// Makes a thread's heap the arena's user. Returns 0; EBUSY if the arena already has a user; EINVAL
// if the handle is not that of an existing arena. Waits for a maintainer.
int claim_arena(ThreadHeap& arena, ArenaHandle handle, const HeapFront* user) noexcept;
inline void unclaim_arena(ThreadHeap& arena) noexcept {
  // relaxed: stored by this thread, or acquired by its claim
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
    // relaxed: the visitor only reads hints, or claims the arena
    if (heap.user.load(std::memory_order_relaxed) != 0) visit(heap);
  });
}

}  // namespace ts::engine
