#include "api/registry.h"

#include "classic/leaving_memory.h"
#include "classic/thread_slots.h"
#include "os/mutex.h"

namespace ts::api {
namespace {

constinit Mutex registry_lock;
constinit ts_heap* first = nullptr;

// Heaps prepare in the order of the list, and come back in the same. The registry's lock, taken
// first and released last, keeps the list as it is. A heap that is being destroyed is in the list
// no more, but uses what all heaps share.
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
  // Without a lock, for others see the memory go. In a child that is forked meanwhile, nobody uses
  // it.
  heap.operations->destroy(heap.self);
}

}  // namespace ts::api
