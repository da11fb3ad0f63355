#include "secure/slab.h"

#include <bit>

namespace ts::secure {
namespace {

SlabState state_by_counts(const Slab& slab, const SizeClass& c) noexcept {
  const unsigned taken = slab.used_slots + slab.waiting_slots;
  return taken == 0 ? SlabState::empty : taken < c.slots ? SlabState::partial : SlabState::full;
}

}  // namespace

Fault find_slot_fault(const Slab& slab, const SizeClass& c) noexcept {
  unsigned used = 0;
  unsigned waiting = 0;
  for (unsigned word = 0; word < Slab::words; ++word) {
    const std::uint64_t both = slab.bits[word].used & slab.bits[word].waiting;
    if (both != 0) return {"a slot is either in use or waiting", &slab};
    const std::uint64_t any = slab.bits[word].used | slab.bits[word].waiting;
    const unsigned first = word * 64;
    const unsigned slots = c.slots < first ? 0 : c.slots - first;
    if (slots < 64 && any >> slots != 0) return {"a slab has no slot behind its last", &slab};
    if (word == 0 && (slab.leaving & ~slab.bits[0].waiting) != 0)
      return {"a slot that is leaving is waiting", &slab};
    used += static_cast<unsigned>(std::popcount(slab.bits[word].used));
    waiting += static_cast<unsigned>(std::popcount(slab.bits[word].waiting));
  }
  if (used != slab.used_slots) return {"used_slots counts the slots in use", &slab};
  if (waiting != slab.waiting_slots) return {"waiting_slots counts the waiting slots", &slab};
  if (slab.state != SlabState::given_back && !is_canary(slab.canary))
    return {"a canary begins with a zero and a mark", &slab};
  return {};
}

Fault find_slab_fault(const Slab& slab, const SizeClass& c) noexcept {
  if (const Fault fault = find_slot_fault(slab, c)) return fault;
  const SlabState state = state_by_counts(slab, c);
  if (!is_accessible(slab)) {
    if (state != SlabState::empty) return {"a slab that is given back has free slots only", &slab};
  } else if (slab.state != state) {
    return {"a slab's state is that of its slots", &slab};
  }
  return {};
}

}  // namespace ts::secure
