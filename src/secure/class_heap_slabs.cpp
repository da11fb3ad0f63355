// Slabs that come and go: memory for them and for their table.
#include "base/bits.h"
#include "base/check.h"
#include "secure/checks.h"
#include "secure/class_heap.h"
#include "secure/zero.h"

namespace ts::secure {
namespace {

// Slabs without memory get it again only when there are more than so many, the oldest first: before
// that, each access through a pointer into one ends the program.
constexpr std::uint32_t min_given_back = 32;

}  // namespace

bool ClassHeap::extend_table(std::uint32_t slabs) noexcept {
  const std::uintptr_t table = address_of(store_);
  const std::size_t needed = address_of(slabs_ + slabs) - table;
  if (needed <= table_mapped_) return true;
  // An eighth ahead, so that a large table grows by few calls.
  const std::size_t left = table_bytes() - table_mapped_;
  std::size_t more = align_up(needed - table_mapped_ + table_mapped_ / 8, page_bytes());
  if (more > left) more = left;
  if (!take_pages(table + table_mapped_, more)) return false;
  table_mapped_ += more;
  return true;
}

// Memory for a slab that has none, and is in no list.
bool ClassHeap::map_slab(std::uint32_t number) noexcept {
  check(slabs_[number].used_slots == 0 && slabs_[number].waiting_slots == 0,
        "a slab that gets memory has free slots only", &slabs_[number]);
  if (has_memory() && !take_pages(address_of(slot_at(number, 0)), size_class().slab_bytes))
    return false;
  slabs_[number].canary = make_canary(store_->random.next_64());
  ++mapped_slabs_;
  ++empty_slabs_;
  ++maps_;
  enter(number, SlabState::empty);
  return true;
}

ClassHeap::Refusal ClassHeap::add_slab(std::uint32_t& number) noexcept {
  const std::uint32_t oldest = given_back_.first;
  const bool has_room = slab_count_ < capacity_;
  if (oldest != 0 && (!has_room || slab_count_ - mapped_slabs_ > min_given_back)) {
    number = oldest - 1;
    leave(number);
    if (map_slab(number)) return Refusal::none;
    enter(number, SlabState::given_back);
    return Refusal::no_memory;
  }
  if (!has_room) return Refusal::region_is_full;
  number = slab_count_;
  if (!extend_table(number + 1) || !map_slab(number)) return Refusal::no_memory;
  ++slab_count_;
  return Refusal::none;
}

// An empty slab loses its memory; but one that was written to after a free keeps it until that is
// found: by the malloc that takes the slot, by malloc_trim, or at exit.
bool ClassHeap::give_back(std::uint32_t number) noexcept {
  check(slabs_[number].state == SlabState::empty && slabs_[number].used_slots == 0 &&
            slabs_[number].waiting_slots == 0,
        "a slab that is given back is empty", &slabs_[number]);
  std::byte* const begin = slot_at(number, 0);
  const SizeClass& c = size_class();
  const std::size_t slot_bytes = std::size_t{c.slots} * c.slot_bytes;
  if (has_memory() && (!is_zero(begin, slot_bytes) || !give_pages(address_of(begin), c.slab_bytes)))
    return false;
  leave(number);
  enter(number, SlabState::given_back);
  --empty_slabs_;
  --mapped_slabs_;
  return true;
}

bool ClassHeap::give_back_some(std::uint32_t at_most) noexcept {
  std::uint32_t gave = 0;
  for (std::uint32_t next = empty_.first; next != 0 && gave != at_most;) {
    const std::uint32_t number = next - 1;
    next = slabs_[number].next;
    gave += give_back(number) ? 1 : 0;
  }
  return gave != 0;
}

bool ClassHeap::give_back_empty_slabs() noexcept {
  const Guard guard{lock_};
  const bool gave = give_back_some(slab_count_);
  if constexpr (debug_level >= 2) check_slow_path();
  return gave;
}

}  // namespace ts::secure
