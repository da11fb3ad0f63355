// Damage, walks and statistics of a class heap.
#include "secure/class_heap.h"
#include "secure/zero.h"

namespace ts::secure {

// Finds the first damage in an accessible slab.
ClassHeap::Damage ClassHeap::find_damage(std::uint32_t number) noexcept {
  const SizeClass& c = size_class();
  Slab& slab = slabs_[number];
  for (unsigned slot = 0; slot < c.slots; ++slot) {
    std::byte* const block = slot_at(number, slot);
    if (is_leaving(slab, slot)) continue;
    if (slab.is_used(slot)) {
      if (asked_at({&slab, number, slot, block}) == no_size) return {Finding::overflow, block};
    } else if (!is_zero(block, c.slot_bytes)) {
      return {Finding::write_after_free, block};
    }
  }
  return {Finding::sound, nullptr};
}

ClassHeap::Damage ClassHeap::find_damage() noexcept {
  const Guard guard{lock_};
  for (std::uint32_t i = 0; has_memory() && i < slab_count_; ++i) {
    if (!is_accessible(slabs_[i])) continue;
    const Damage damage = find_damage(i);
    if (damage.finding != Finding::sound) return damage;
  }
  return {Finding::sound, nullptr};
}

Left ClassHeap::find_left() noexcept {
  Left left;
  if (!lock_.try_lock()) return left;
  for (std::uint32_t i = 0; i < slab_count_; ++i) {
    const Slab& slab = slabs_[i];
    if (!is_accessible(slab)) continue;
    left.blocks += slab.used_slots;
    for (unsigned slot = 0; slot < size_class().slots; ++slot) {
      const std::size_t asked =
          slab.is_used(slot) ? asked_at({&slabs_[i], i, slot, slot_at(i, slot)}) : 0;
      if (asked != no_size) left.bytes += asked;
    }
    if (left.finding != Finding::sound || !has_memory()) continue;
    const Damage damage = find_damage(i);
    left.finding = damage.finding;
    left.where = damage.block;
    left.most_bytes = size_class().block_bytes;
  }
  lock_.unlock();
  return left;
}

bool ClassHeap::walk(unsigned arena, BlockVisitor visit, void* argument) noexcept {
  const Guard guard{lock_};
  for (std::uint32_t i = 0; i < slab_count_; ++i) {
    const Slab& slab = slabs_[i];
    if (!is_accessible(slab)) continue;
    for (unsigned slot = 0; slot < size_class().slots; ++slot) {
      const BlockState state = slab.is_used(slot)      ? BlockState::used
                               : slab.is_waiting(slot) ? BlockState::cached
                                                       : BlockState::free;
      if (!visit({slot_at(i, slot), size_class().block_bytes, state, arena}, argument))
        return false;
    }
  }
  return true;
}

ClassHeap::Totals ClassHeap::totals() noexcept {
  const Guard guard{lock_};
  Totals totals;
  if (!has_memory()) return totals;
  const SizeClass& c = size_class();
  for (std::uint32_t i = 0; i < slab_count_; ++i) {
    const Slab& slab = slabs_[i];
    if (!is_accessible(slab)) continue;
    totals.mapped_bytes += c.slab_bytes;
    totals.used_bytes += std::size_t{slab.used_slots} * c.slot_bytes;
    totals.waiting_bytes += std::size_t{slab.waiting_slots} * c.slot_bytes;
    totals.free_slots += c.slots - slab.used_slots;
  }
  totals.maps = maps_;
  return totals;
}

}  // namespace ts::secure
