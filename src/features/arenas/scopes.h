// Scopes: while a thread is in the scope of an arena, the arena's heap is its current heap, and
// malloc and free of all code use it, at full speed. Scopes nest. Each has a frame: the arena's own
// or, if that is in use, a block of the thread's heap.
//
//   ts_scope_enter -> enter_scope -> enter_scope_slow -> claim_arena (arena_use.h) | enter_again
//   ts_scope_leave -> leave_scope -> leave_scope_slow
//   thread_ends    -> hooks::thread_is_ending (arena_use.cpp)
#pragma once

#include <cerrno>

#include "core/page_map.h"
#include "features/arenas/arena_use.h"

namespace ts::engine {

// Keeps a pointer in a register of its own: if two were loaded as one vector, the load would wait
// for two separate stores.
template <class T>
[[gnu::always_inline]] inline T* alone(T* p) noexcept {
  asm("" : "+r"(p));
  return p;
}

// For a scope that was not reentered yet; `outer` and `outside` are what the thread had before.
[[gnu::always_inline]] inline void push_frame(ScopeFrame& frame, HeapFront* heap, ScopeFrame* outer,
                                              HeapFront* outside) noexcept {
  frame.outer = outer;
  frame.heap_outside = outside;
  this_thread.innermost_scope = &frame;
  this_thread.heap = heap;
}

int enter_scope_slow(ArenaHandle handle) noexcept;
// For a scope that was reentered, or whose frame is a block.
int leave_scope_slow(ScopeFrame& frame) noexcept;

// Enters the scope of an arena or, with handle 0, that of the thread's own heap. 0; EINVAL and
// EBUSY as in claim_arena(); ENOMEM if there is no memory for the thread's heap or for a frame.
inline int enter_scope(ArenaHandle handle) noexcept {
  const ArenaHandle number = arena_number(handle);
  // relaxed: a handle reaches a thread after the count that covers it; for other numbers, any bound
  // will do
  if (!has_threads_heap() || number > page_map.heap_count.load(std::memory_order_relaxed))
      [[unlikely]]
    return enter_scope_slow(handle);
  ThreadHeap& arena = page_map.heaps[number];
  std::uintptr_t idle = idle_mark_of(handle);  // no arena has that of 0 and the like
  // Before the claim, because processors delay later loads until it is done.
  HeapFront* const outside = alone(this_thread.heap);
  ScopeFrame* const outer = alone(this_thread.innermost_scope);
  // As in claim_arena().
  if (!arena.user.compare_exchange_strong(idle, address_of(outside), std::memory_order_acquire,
                                          std::memory_order_relaxed)) [[unlikely]]
    return enter_scope_slow(handle);
  push_frame(arena.scope, &arena, outer, outside);
  return 0;
}

// Leaves the innermost scope; EINVAL if there is none.
inline int leave_scope() noexcept {
  ScopeFrame* const frame = this_thread.innermost_scope;
  if (frame == nullptr) [[unlikely]]
    return EINVAL;  // also for a thread that has no heap
  ThreadHeap& heap = current_heap();
  if (frame != &heap.scope || frame->repeats != 0) [[unlikely]]
    return leave_scope_slow(*frame);
  this_thread.innermost_scope = alone<ScopeFrame>(frame->outer);
  this_thread.heap = alone<HeapFront>(frame->heap_outside);
  unclaim_arena(heap);
  return 0;
}

}  // namespace ts::engine
