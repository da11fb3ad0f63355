// Statistics, walks, damage and invariants of the whole heap.
#include "os/error_line.h"
#include "os/options.h"
#include "secure/checks.h"
#include "secure/findings.h"
#include "secure/secure.h"
#include "secure/state.h"

namespace ts::secure {
namespace {

Fault find_heap_fault(bool is_at_rest) noexcept {
  Fault fault;
  for_each_heap([&](ClassHeap& heap, unsigned) {
    if (!fault) fault = heap.find_fault();
  });
  return fault ? fault : roots.state->large.find_fault(is_at_rest);
}

bool has_damage() noexcept {
  bool has_damage = false;
  for_each_heap([&](ClassHeap& heap, unsigned) {
    has_damage = has_damage || heap.find_damage().finding != Finding::sound;
  });
  return has_damage || roots.state->large.find_overflow() != nullptr;
}

}  // namespace

HeapMeasures Secure::measures() noexcept {
  HeapMeasures measures;
  if (!is_open()) return measures;
  for_each_heap([&](ClassHeap& heap, unsigned) {
    const ClassHeap::Totals totals = heap.totals();
    measures.segment_bytes += totals.mapped_bytes;
    measures.free_bytes += totals.mapped_bytes - totals.used_bytes;
    measures.cached_bytes += totals.waiting_bytes;
    measures.free_blocks += totals.free_slots;
    measures.grow_calls += totals.maps;
  });
  const LargeBlocks::Totals large = roots.state->large.totals();
  measures.segment_bytes += large.bytes;
  measures.chunks = large.blocks + 1;
  measures.grow_calls += large.maps;
  measures.heaps = roots.arenas;
  return measures;
}

bool Secure::walk(BlockVisitor visit, void* argument) noexcept {
  if (!is_open()) return true;
  bool goes_on = true;
  for_each_heap([&](ClassHeap& heap, unsigned arena) {
    goes_on = goes_on && heap.walk(arena, visit, argument);
  });
  return goes_on && roots.state->large.walk(visit, argument);
}

bool Secure::trim(std::size_t) noexcept {
  if (!is_open()) return false;
  bool gave = false;
  for (unsigned arena = 0; arena < roots.arenas; ++arena) {
    for (unsigned c = 0; c < class_count; ++c) {
      ClassHeap& heap = roots.state->heaps[arena][c];
      const ClassHeap::Damage damage = heap.find_damage();
      report(damage.finding, FoundBy::a_later_call, damage.block, size_class_of(c).block_bytes);
      gave = heap.give_back_empty_slabs() || gave;
    }
  }
  if (const std::byte* const block = roots.state->large.find_overflow(); block != nullptr)
    report(Finding::overflow, FoundBy::a_later_call, block, bytes_of(block));
  return roots.state->large.give_back_stuck() || gave;
}

void Secure::end_process() noexcept {
  const AtExit choice = current_options.at_exit;
  if (choice == AtExit::off || is_forked) return;
  Left all;
  const auto add = [&](const Left& left) {
    all.blocks += left.blocks;
    all.bytes += left.bytes;
    report(left.finding, FoundBy::exit, left.where, left.most_bytes);
  };
  if (is_open()) {
    for_each_heap([&](ClassHeap& heap, unsigned) { add(heap.find_left()); });
    add(roots.state->large.find_left());
  }
  if (choice != AtExit::leaks) return;
  os::ErrorLine line;
  line.text("at exit, ");
  line.number(all.blocks);
  line.text(all.blocks == 1 ? " block with " : " blocks with ");
  line.number(all.bytes);
  line.text(all.bytes == 1 ? " byte" : " bytes");
  line.text(all.blocks == 1 ? " is still in use" : " are still in use");
  line.write();
}

Fault Secure::find_fault() noexcept { return is_open() ? find_heap_fault(true) : Fault{}; }

bool Secure::is_valid() noexcept { return !find_fault() && (!is_open() || !has_damage()); }

void Secure::check_now_and_then() noexcept {
  if (is_open() && is_check_due<calls_per_whole_check>()) require_none(find_heap_fault(false));
}

}  // namespace ts::secure
