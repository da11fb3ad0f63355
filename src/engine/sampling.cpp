#include "engine/sampling.h"

#include <algorithm>

#include "base/exponential.h"
#include "engine/refill.h"
#include "engine/sample_heap.h"
#include "engine/sampled_guard.h"
#include "engine/sampling_switch.h"
#include "engine/span_supply.h"
#include "os/options.h"

namespace ts::engine {
namespace {

// The number of the malloc that is the next sample, from 1 on: with p = 1 - exp(-x), the whole part
// of an exponential number of rate x is geometric.
std::uint32_t draw(ThreadHeap& heap, std::size_t block_bytes) noexcept {
  const double mallocs = exponential_of(next_random(heap)) *
                         static_cast<double>(heap.drawn_interval) /
                         static_cast<double>(block_bytes);
  return 1 + static_cast<std::uint32_t>(mallocs);
}
static_assert(37 * max_sampling_interval / 16 < std::uint64_t{1} << 32, "a draw has 32 bits");

// ---- bins ----

// The last of the first `count` blocks of a list, all of which are marked; null if they are not so
// many: the list is damaged.
Block* last_of(Block* first, std::uint32_t count) noexcept {
  for (Block* last = first;; last = last->next) {
    if (is_below(address_of(last), lowest_block) || !is_marked(last)) return nullptr;
    if (--count == 0) return last;
  }
}

// All of the sampling bin.
Turn take_sampling_bin(ThreadHeap& heap, unsigned size_class) noexcept {
  Turn turn{heap.sampling_bins[size_class].head,
            static_cast<std::uint32_t>(std::max(counted_in_sampling_bin(heap, size_class), 0))};
  set_sampling_bin(heap, size_class, nullptr, 0, 0);
  if (turn.first == nullptr) return {};
  turn.count = std::max(turn.count, std::uint32_t{1});  // or cut off between list and count
  Block* const last = last_of(turn.first, turn.count);
  if (last == nullptr) [[unlikely]] {
    report_damage(size_class, turn.first);
    return {};
  }
  last->next = nullptr;
  return turn;
}

// Adds blocks of slabs behind the others. Without memory, it may have none.
Turn add_from_slabs(ThreadHeap& heap, unsigned size_class, Turn turn) noexcept {
  const HeapHold hold{heap};
  Block* const first = refill(heap, size_class);
  if (first == nullptr) return turn;
  const std::int32_t more = 1 + std::max(counted_blocks(heap, size_class), 0);
  first->next = heap.bins[size_class].head;
  drop_bin(heap, size_class);
  if (turn.first == nullptr) return {first, static_cast<std::uint32_t>(more)};
  last_of(turn.first, turn.count)->next = first;
  turn.count += static_cast<std::uint32_t>(more);
  return turn;
}

// Leaves at most so many blocks, and puts the others into the sampling bin, which is empty, and takes
// blocks from now on.
Turn keep_at_most(ThreadHeap& heap, unsigned size_class, Turn turn, std::uint32_t most) noexcept {
  const std::uint32_t kept = std::min(turn.count, most);
  Block* const last = last_of(turn.first, kept);
  if (last == nullptr) [[unlikely]] {
    report_damage(size_class, turn.first);
    return {};
  }
  set_sampling_bin(heap, size_class, last->next, static_cast<std::int32_t>(turn.count - kept),
                   heap.capacities[size_class]);
  last->next = nullptr;
  return {turn.first, kept};
}

// A turn of blocks for malloc, fewer than the malloc is away that is the next sample.
[[gnu::noinline]] void* take_turn(ThreadHeap& heap, unsigned size_class) noexcept {
  const std::uint32_t most = heap.until_sample[size_class] - 1;
  Turn turn;
  if (heap.bins[size_class].head == nullptr)  // or else refill() reports it
    turn = take_sampling_bin(heap, size_class);
  if (turn.count < least_turn(heap, size_class) && turn.count < most)
    turn = add_from_slabs(heap, size_class, turn);
  if (turn.first != nullptr) turn = keep_at_most(heap, size_class, turn, most);
  return turn.first != nullptr ? hand_out(heap, size_class, turn) : out_of_memory();
}

// An interval that changed: the numbers of mallocs are drawn anew, which the past does not matter to.
[[gnu::cold]] void begin_interval(ThreadHeap& heap, std::uint64_t interval) noexcept {
  heap.has_sampling_bins = true;
  heap.drawn_interval = interval;
  std::ranges::fill(heap.until_sample, 0U);
}

// A thread takes one sample at a time: a signal handler's malloc within is none. A longjmp out of it
// leaves the count too high, until so many others were passed over.
constexpr std::uint32_t max_passed_over = 64;

void* take_sample(ThreadHeap& heap, std::size_t bytes, unsigned size_class,
                  const void* caller) noexcept {
  if (heap.sampling_depth != 0 && ++heap.sampling_depth < max_passed_over) return nullptr;
  heap.sampling_depth = 1;
  void* const p = allocate_sample(bytes, size_class, heap.drawn_interval, caller);
  heap.sampling_depth = 0;
  return p;
}

}  // namespace

void* allocate_while_sampling(std::size_t bytes, unsigned size_class) noexcept {
  ThreadHeap& heap = own_heap();
  const std::uint64_t interval = sampling_interval.load(std::memory_order_relaxed);
  if (heap.drawn_interval != interval && interval != 0) [[unlikely]]
    begin_interval(heap, interval);
  const std::size_t block_bytes = size_classes[size_class].block_bytes;
  std::uint32_t& until = heap.until_sample[size_class];
  if (until == 0) until = draw(heap, block_bytes);
  if (until == 1) [[unlikely]] {
    until = draw(heap, block_bytes);
    // All calls from malloc to this one are the last of their callers.
    const void* const caller = __builtin_return_address(0);
    if (void* const p = take_sample(heap, bytes, size_class, caller); p != nullptr) return p;
    ++until;  // this malloc passes
  }
  if (current_options.guard_sample != 0) [[unlikely]] {
    if (void* const p = allocate_guarded(size_classes[size_class]); p != nullptr) {
      --until;  // this malloc passes
      return p;
    }
  }
  return take_turn(heap, size_class);
}

}  // namespace ts::engine
