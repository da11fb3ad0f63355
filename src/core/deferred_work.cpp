#include "core/deferred_work.h"

#include "core/current_heap.h"
#include "core/hooks.h"

namespace ts::engine {

// ---- purges ----

namespace {

// Shared by threads without a heap.
constinit Atomic<std::uint32_t> calls_without_heap{0};

// How many calls in a row may find another one in progress. A longjmp out of a replaced function
// never ends its call, which later ones would then find forever.
constexpr std::uint32_t max_nested_calls = 64;

bool holds(const ThreadHeap* heap) noexcept {
  // relaxed: this thread's own hold
  return heap != nullptr && heap->holder.load(std::memory_order_relaxed) == Holder::owner;
}

}  // namespace

// relaxed, here and below: only the heap's own thread writes the count. Threads without a heap
// share one, so one of them may skip work because another is doing it.
DeferredCall::DeferredCall(ThreadHeap* heap) noexcept
    : calls_{heap != nullptr ? &heap->deferred_calls : &calls_without_heap} {
  const std::uint32_t before = calls_->load(std::memory_order_relaxed);
  if (holds(heap)) {
    calls_ = nullptr;
    return;
  }
  calls_->store(before == max_nested_calls ? 1 : before + 1, std::memory_order_relaxed);
  if (before != 0 && before != max_nested_calls) calls_ = nullptr;
}

DeferredCall::~DeferredCall() {
  if (calls_ != nullptr) calls_->store(0, std::memory_order_relaxed);
}

void send_purges() noexcept {
  const OutOfScope out_of_scope;
  const DeferredCall call{has_heap() ? &current_heap() : nullptr};
  if (call.may_go_on()) page_heap.send_purges();
}

// ---- at the end of a slow path ----

void do_deferred_work() noexcept {
  const OutOfScope out_of_scope;
  ThreadHeap& heap = current_heap();
  const DeferredCall call{&heap};
  if (!call.may_go_on()) return;
  hooks::attend_to_heap(heap);
  page_heap.send_purges();
}

}  // namespace ts::engine
