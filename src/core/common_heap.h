// One heap shared by threads that cannot have their own: because they are ending and have abandoned
// theirs, because the system would not report their end, or because there are no addresses left for
// another heap. One call at a time.
#pragma once

#include "core/types.h"
#include "os/mutex.h"

namespace ts::engine {

inline constinit Mutex common_lock;

// A span for a slab of a heap that no thread owns, allocated without the heap's lock.
class SpanForHeap {
 public:
  explicit SpanForHeap(unsigned size_class) noexcept : size_class_{size_class} {}
  ~SpanForHeap();
  SpanForHeap(const SpanForHeap&) = delete;
  SpanForHeap& operator=(const SpanForHeap&) = delete;

  // Calls `allocate(*this)`, which takes the lock and calls allocate_from(). Calls it again if it
  // asked for a span.
  template <class Allocate>
  void* serve(Allocate allocate) noexcept {
    void* const p = allocate(*this);
    return p != nullptr || !get() ? p : allocate(*this);
  }

 private:
  friend void* allocate_from(ThreadHeap& heap, unsigned size_class, SpanForHeap& span) noexcept;
  bool get() noexcept;

  unsigned size_class_;
  std::size_t wanted_pages_ = 0;
  Span* span_ = nullptr;
};

// A block from a heap that no thread owns, under its lock, without its key. Null if the heap has
// none; then `span` knows that a span is needed.
void* allocate_from(ThreadHeap& heap, unsigned size_class, SpanForHeap& span) noexcept;

// A block of the common heap; null if there is no memory.
void* allocate_from_common(unsigned size_class) noexcept;

// Flushes the common heap's caches.
void flush_common_heap() noexcept;

bool is_common(const ThreadHeap& heap) noexcept TS_REQUIRES(common_lock);

}  // namespace ts::engine
