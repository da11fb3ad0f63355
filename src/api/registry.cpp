#include "api/registry.h"

#include "classic/leaving_memory.h"
#include "classic/thread_slots.h"
#include "os/mutex.h"

namespace ts::api {
namespace {

constinit Mutex registry_lock;
constinit ts_heap* first = nullptr;

// Heaps prepare and return in list order. The registry's lock, taken first and released last, keeps
// the list unchanged. A heap that is being destroyed is no longer in the list, but still uses what
// all heaps share.
void prepare() noexcept TS_NO_ANALYSIS {
  registry_lock.lock();
  classic::ThreadSlots::fork_prepare();
  for (ts_heap* heap = first; heap != nullptr; heap = heap->next)
    heap->operations->fork_prepare(heap->self);
}

void parent() noexcept TS_NO_ANALYSIS {
  for (ts_heap* heap = first; heap != nullptr; heap = heap->next)
    heap->operations->fork_parent(heap->self);
  classic::ThreadSlots::fork_parent();
  registry_lock.unlock();
}

void child() noexcept TS_NO_ANALYSIS {
  for (ts_heap* heap = first; heap != nullptr; heap = heap->next)
    heap->operations->fork_child(heap->self);
  classic::ThreadSlots::fork_child();
  classic::fork_child_leaving();
  registry_lock.reset_after_fork();
}

}  // namespace

void add(ts_heap& heap) noexcept {
  static constinit bool handlers_registered = false;
  const Guard guard{registry_lock};
  handlers_registered = handlers_registered || os::call_around_fork(prepare, parent, child);
  heap.previous = nullptr;
  heap.next = first;
  if (first != nullptr) first->previous = &heap;
  first = &heap;
}

void remove_and_destroy(ts_heap& heap) noexcept {
  {
    const Guard guard{registry_lock};
    (heap.previous != nullptr ? heap.previous->next : first) = heap.next;
    if (heap.next != nullptr) heap.next->previous = heap.previous;
  }
  // Without a lock, since other libraries may intercept the unmapping. In a child forked meanwhile,
  // nobody uses this memory.
  heap.operations->destroy(heap.self);
}

}  // namespace ts::api
