// The calling thread's heap, behind one thread-local pointer that is never null. A thread without a
// heap points to an image whose bins are empty and whose number owns no page, so neither fast path
// checks for a heap.
#pragma once

#include "core/types.h"

namespace ts::engine {

// For threads that have no heap yet, and for ending ones. Never written to.
inline constinit const HeapFront no_heap_image;
inline constinit const HeapFront ended_heap_image;
inline HeapFront* const no_heap = const_cast<HeapFront*>(&no_heap_image);
inline HeapFront* const ended_heap = const_cast<HeapFront*>(&ended_heap_image);

// Whether a heap samples. True for the image, whose number has all bits set.
inline bool is_sampling(const HeapFront& heap) noexcept {
  return (heap.self.load(std::memory_order_relaxed) & sampling_bit) != 0;
}

// Adjacent, so that one address computation reaches both.
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
// Whether the current heap is the thread's own rather than an arena's.
inline bool has_threads_heap() noexcept { return self() < arena_bit; }
inline bool is_in_scope() noexcept {
  const PageMapEntry number = self();
  return number >= arena_bit && number != no_owner;
}

// The current heap of a thread that has one; in a scope, the arena's.
inline ThreadHeap& current_heap() noexcept { return static_cast<ThreadHeap&>(*this_thread.heap); }

// The thread's heap outside of all scopes, or the image if it has none.
inline HeapFront* threads_heap() noexcept {
  if (!is_in_scope()) [[likely]]
    return this_thread.heap;
  // relaxed: this thread's own
  return reinterpret_cast<HeapFront*>(current_heap().user.load(std::memory_order_relaxed));
}

// While it lives, the calling thread is in no scope. A thread outside of scopes may get its heap
// meanwhile, and keeps it. (A thread in a scope already has a heap.)
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
