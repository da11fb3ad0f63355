// The heap of the calling thread, behind one thread-local pointer that is never null. A thread
// without a heap has an image whose bins are empty and whose number owns no page. So neither fast
// path asks whether there is a heap.
#pragma once

#include "core/types.h"

namespace ts::engine {

// Of a thread that has no heap yet, and of one that is ending. Never written to.
inline constinit const HeapFront no_heap_image;
inline constinit const HeapFront ended_heap_image;
inline HeapFront* const no_heap = const_cast<HeapFront*>(&no_heap_image);
inline HeapFront* const ended_heap = const_cast<HeapFront*>(&ended_heap_image);

// Whether a heap samples; true without one, whose number has all bits.
inline bool is_sampling(const HeapFront& heap) noexcept {
  return (heap.self.load(std::memory_order_relaxed) & sampling_bit) != 0;
}

// Side by side: one address serves both.
struct ThisThread {
  HeapFront* heap;                        // the current one
  ScopeFrame* innermost_scope = nullptr;  // scopes.h
  std::uint32_t early_frees = 0;          // before there was a heap
};
inline constinit thread_local ThisThread this_thread{const_cast<HeapFront*>(&no_heap_image)};

// The current heap's number, with sampling_bit while it samples.
inline PageMapEntry self() noexcept {
  return this_thread.heap->self.load(std::memory_order_relaxed);  // types.h
}

inline bool has_heap() noexcept { return self() != no_owner; }
// Whether that is the thread's own, and no arena's.
inline bool has_threads_heap() noexcept { return self() < arena_bit; }
inline bool is_in_scope() noexcept {
  const PageMapEntry number = self();
  return number >= arena_bit && number != no_owner;
}

// The current heap of a thread that has one: in a scope, the arena's.
inline ThreadHeap& current_heap() noexcept { return static_cast<ThreadHeap&>(*this_thread.heap); }

// The heap that the thread has outside of all scopes, or the image of none.
inline HeapFront* threads_heap() noexcept {
  if (!is_in_scope()) [[likely]]
    return this_thread.heap;
  // relaxed: this thread's own
  return reinterpret_cast<HeapFront*>(current_heap().user.load(std::memory_order_relaxed));
}

// While it lives, the calling thread is in no scope. A thread in none may get its heap meanwhile,
// and keeps it. (One in a scope has a heap outside.)
class OutOfScope {
 public:
  OutOfScope() noexcept : inside_{is_in_scope() ? this_thread.heap : nullptr} {
    if (inside_ != nullptr) this_thread.heap = threads_heap();
  }
  ~OutOfScope() {
    if (inside_ != nullptr) this_thread.heap = inside_;
  }
  OutOfScope(const OutOfScope&) = delete;
  OutOfScope& operator=(const OutOfScope&) = delete;

 private:
  HeapFront* inside_;
};

}  // namespace ts::engine
