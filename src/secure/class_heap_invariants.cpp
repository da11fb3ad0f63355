// Checks of the invariants of slab.h and class_heap.h.
#include "base/bits.h"
#include "secure/checks.h"
#include "secure/class_heap.h"
#include "secure/slab_layout.h"

namespace ts::secure {

Fault ClassHeap::find_list_fault(const SlabList& list, SlabState state,
                                 std::uint32_t length) noexcept {
  std::uint32_t before = 0;
  std::uint32_t listed = 0;
  for (std::uint32_t at = list.first; at != 0; before = at, at = slabs_[at - 1].next) {
    if (at > slab_count_) return {"a list has slabs of its heap", &list};
    const Slab& slab = slabs_[at - 1];
    if (slab.state != state) return {"a list has slabs of its state", &slab};
    if (slab.before != before) return {"listed slabs are linked in both directions", &slab};
    if (++listed > length) break;
  }
  if (listed != length) return {"each slab is in the list of its state once", &list};
  if (before != list.last) return {"a list ends with its last slab", &list};
  return {};
}

// Checks that the quarantine has each waiting slot once: all its entries are waiting, there are as
// many of them as waiting slots, and the sums of a hash over both agree.
Fault ClassHeap::find_waiting_fault() noexcept {
  std::uint64_t count = 0;
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < slab_count_; ++i) {
    for (unsigned slot = 0; slabs_[i].waiting_slots != 0 && slot < size_class().slots; ++slot) {
      if (!slabs_[i].is_waiting(slot) || is_leaving(slabs_[i], slot)) continue;
      ++count;
      sum += mix(ticket_of(i, slot));
    }
  }
  Fault fault = store_->quarantine.find_fault(size_class().waiting);
  store_->quarantine.for_each([&](std::uint32_t ticket) TS_NO_ANALYSIS {
    const std::uint32_t slab = slab_of_ticket(ticket);
    const unsigned slot = slot_of_ticket(ticket);
    if (slab >= slab_count_ || !slabs_[slab].is_waiting(slot) || is_leaving(slabs_[slab], slot))
      fault = {"a quarantine has waiting slots", store_};
    --count;
    sum -= mix(ticket);
  });
  if (fault) return fault;
  if (count != 0 || sum != 0) return {"each waiting slot is in the quarantine once", store_};
  return {};
}

Fault ClassHeap::find_fault_locked() noexcept {
  if (!is_open()) return slab_count_ == 0 ? Fault{} : Fault{"a heap with slabs is open", this};
  const SizeClass& c = size_class();
  const std::uintptr_t begin = region_.load(std::memory_order_relaxed);
  const std::uintptr_t end = begin + offset_of(c, capacity_ - 1) + c.slab_bytes;
  if (slab_count_ > capacity_) return {"slab_count <= capacity", this};
  if (region_of(reinterpret_cast<const void*>(begin)) !=
      region_of(reinterpret_cast<const void*>(end - 1)))
    return {"a region holds the slabs of its heap", this};
  if (address_of(slabs_ + slab_count_) - address_of(store_) > table_mapped_ ||
      table_mapped_ > table_bytes())
    return {"a table's memory holds its slabs", this};
  std::uint32_t in_state[slab_states] = {};
  for (std::uint32_t i = 0; i < slab_count_; ++i) {
    if (const Fault fault = find_slab_fault(slabs_[i], c)) return fault;
    ++in_state[static_cast<unsigned>(slabs_[i].state)];
  }
  const auto count_of = [&](SlabState state) { return in_state[static_cast<unsigned>(state)]; };
  if (slab_count_ - count_of(SlabState::given_back) != mapped_slabs_)
    return {"mapped_slabs counts the slabs with memory", this};
  if (count_of(SlabState::empty) != empty_slabs_)
    return {"empty_slabs counts the empty slabs", this};
  for (const SlabState state : {SlabState::partial, SlabState::empty, SlabState::given_back}) {
    if (const Fault fault = find_list_fault(*list_of(state), state, count_of(state))) return fault;
  }
  return find_waiting_fault();
}

Fault ClassHeap::find_fault() noexcept {
  const Guard guard{lock_};
  return find_fault_locked();
}

void ClassHeap::check_slow_path() noexcept {
  if (is_check_due<slow_paths_per_check>()) require_none(find_fault_locked());
}

}  // namespace ts::secure
