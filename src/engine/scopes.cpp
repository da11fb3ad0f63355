#include "engine/scopes.h"

#include <cerrno>

#include "engine/thread_heap.h"

namespace ts::engine {
namespace {

[[gnu::always_inline]] inline void push(ScopeFrame& frame, HeapFront* heap) noexcept {
  frame = {innermost_scope, current_heap, 0};
  innermost_scope = &frame;
  current_heap = heap;
}

// A block for a frame, from the thread's own heap.
ScopeFrame* allocate_frame() noexcept {
  const int saved_errno = errno;
  const OutOfScope out_of_scope;
  void* const frame = allocate_small(sizeof(ScopeFrame), bin_offsets[sizeof(ScopeFrame)]);
  errno = saved_errno;
  return static_cast<ScopeFrame*>(frame);
}

// Enters the scope of a heap that this thread uses already. A count will do if it is the innermost
// one; else its own frame is not free.
[[gnu::noinline]] int enter_again(HeapFront* heap) noexcept {
  if (innermost_scope != nullptr && current_heap == heap) {
    ++innermost_scope->repeats;
    return 0;
  }
  ScopeFrame* const frame = allocate_frame();
  if (frame == nullptr) return ENOMEM;
  push(*frame, heap);
  return 0;
}

// Gives the thread a heap, by a malloc as any other.
[[gnu::noinline]] bool get_heap() noexcept {
  const int saved_errno = errno;
  release(allocate_small(1, bin_offsets[1]));
  errno = saved_errno;
  return has_heap();
}

}  // namespace

// The cases that enter_scope() leaves out.
[[gnu::noinline]] int enter_scope_slow(ArenaHandle handle) noexcept {
  if (!has_heap() && !get_heap()) [[unlikely]]
    return ENOMEM;
  HeapFront* const own = threads_heap();
  if (handle == 0) return enter_again(own);
  ThreadHeap* const arena = arena_of(handle);
  if (arena == nullptr) return EINVAL;
  if (const int error = claim_arena(*arena, handle, own); error != 0) [[unlikely]] {
    return error == EBUSY && is_user(*arena) ? enter_again(arena) : error;
  }
  push(arena->scope, arena);
  return 0;
}

int enter_scope(ArenaHandle handle) noexcept {
  const ArenaHandle number = arena_number(handle);
  if (!has_threads_heap() || number > page_map.heap_count.load(std::memory_order_relaxed))
      [[unlikely]]
    return enter_scope_slow(handle);
  ThreadHeap& arena = page_map.heaps[number];
  std::uintptr_t idle = idle_mark_of(handle);  // of 0 and the like, no arena has it
  // As claim_arena().
  if (!arena.user.compare_exchange_strong(idle, address_of(current_heap), std::memory_order_acquire,
                                          std::memory_order_relaxed)) [[unlikely]]
    return enter_scope_slow(handle);
  push(arena.scope, &arena);
  return 0;
}

int leave_scope() noexcept {
  ScopeFrame* const frame = innermost_scope;
  if (frame == nullptr) return EINVAL;
  if (frame->repeats != 0) {
    --frame->repeats;
    return 0;
  }
  ThreadHeap& heap = own_heap();
  innermost_scope = frame->outer;
  current_heap = frame->heap_outside;
  if (frame == &heap.scope) [[likely]] {
    unclaim_arena(heap);
  } else {
    release(frame);
  }
  return 0;
}

}  // namespace ts::engine
