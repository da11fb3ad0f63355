#include "features/arenas/scopes.h"

#include <cerrno>

#include "core/thread_heap.h"

namespace ts::engine {
namespace {

// Allocates a frame from the thread's own heap.
ScopeFrame* allocate_frame() noexcept {
  const int saved_errno = errno;
  const OutOfScope out_of_scope;
  void* const frame = allocate_small(sizeof(ScopeFrame), bin_offsets[sizeof(ScopeFrame)]);
  errno = saved_errno;
  return static_cast<ScopeFrame*>(frame);
}

// Enters the scope of a heap that this thread already uses. If it is the innermost scope, a counter
// suffices; otherwise its own frame is taken, and a new one is allocated.
[[gnu::noinline]] int enter_again(HeapFront* heap) noexcept {
  if (this_thread.innermost_scope != nullptr && this_thread.heap == heap) {
    ++this_thread.innermost_scope->repeats;
    return 0;
  }
  ScopeFrame* const frame = allocate_frame();
  if (frame == nullptr) return ENOMEM;
  frame->repeats = 0;
  push_frame(*frame, heap, this_thread.innermost_scope, this_thread.heap);
  return 0;
}

// Gives the thread a heap, by an ordinary malloc.
[[gnu::noinline]] bool get_heap() noexcept {
  const int saved_errno = errno;
  release(allocate_small(1, bin_offsets[1]));
  errno = saved_errno;
  return has_heap();
}

}  // namespace

// The cases that enter_scope() does not handle.
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
  push_frame(arena->scope, arena, this_thread.innermost_scope, this_thread.heap);
  return 0;
}

[[gnu::noinline]] int leave_scope_slow(ScopeFrame& frame) noexcept {
  if (frame.repeats != 0) {
    --frame.repeats;
    return 0;
  }
  // This thread still uses the heap outside of the scope.
  this_thread.innermost_scope = frame.outer;
  this_thread.heap = frame.heap_outside;
  release(&frame);
  return 0;
}

}  // namespace ts::engine
