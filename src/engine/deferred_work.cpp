#include "engine/deferred_work.h"

#include "engine/current_heap.h"
#include "engine/tending.h"

namespace ts::engine {
namespace {

// Of threads without a heap.
constinit Atomic<std::uint32_t> calls_without_heap{0};

// How many calls in a row may find another one under way. A longjmp out of a replaced function never
// ends its call: later ones would find it for ever.
constexpr std::uint32_t max_passed_over = 64;

// relaxed: its own thread's; of threads without a heap, one passes over what another one does
bool begin(Atomic<std::uint32_t>& calls) noexcept {
  const std::uint32_t before = calls.load(std::memory_order_relaxed);
  calls.store(before == max_passed_over ? 1 : before + 1, std::memory_order_relaxed);
  return before == 0 || before == max_passed_over;
}

}  // namespace

void do_deferred_work() noexcept {
  const OutOfScope out_of_scope;
  ThreadHeap* const heap = has_heap() ? &own_heap() : nullptr;
  if (heap != nullptr && heap->holder.load(std::memory_order_relaxed) == Holder::owner) return;
  Atomic<std::uint32_t>& calls = heap != nullptr ? heap->deferred_calls : calls_without_heap;
  if (!begin(calls)) return;
  if (heap != nullptr && heap->is_to_tend) {
    heap->is_to_tend = false;
    tend(*heap);
  }
  page_heap.send_purges();
  calls.store(0, std::memory_order_relaxed);
}

}  // namespace ts::engine
