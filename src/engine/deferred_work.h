// What the owner of a heap does at the end of a slow path, and not in the middle of a change: tending
// (tending.h), and sending what purges chose (sent_purges.h).
#pragma once

#include "engine/sent_purges.h"

namespace ts::engine {

// Whether the heap's owner has any. Two loads: slow paths ask before they return.
inline bool has_deferred_work(const ThreadHeap& heap) noexcept {
  return heap.is_to_tend || page_heap.has_purges();
}

// Does all that is due, in the calling thread, which owns a heap and has no lock.
[[gnu::noinline]] void do_deferred_work() noexcept;

}  // namespace ts::engine
