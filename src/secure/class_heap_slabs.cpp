// Adding and removing slabs: memory for them and for their table.
#include "base/bits.h"
#include "base/check.h"
#include "os/os.h"
#include "secure/checks.h"
#include "secure/class_heap.h"
#include "secure/mappings.h"
#include "secure/slab_layout.h"
#include "secure/zero.h"

namespace ts::secure {
namespace {

// A slab without memory is reused only once there are more than this many, the oldest first: until
// then, any access through a dangling pointer into it faults.
constexpr std::uint32_t min_given_back = 32;

}  // namespace

bool ClassHeap::extend_table(std::uint32_t slabs) noexcept {
  const std::uintptr_t table = address_of(store_);
  const std::size_t needed = address_of(slabs_ + slabs) - table;
  if (needed <= table_mapped_) return true;
  // An eighth more than needed, so that a large table grows in few calls.
  const std::size_t left = table_bytes() - table_mapped_;
  std::size_t more = align_up(needed - table_mapped_ + table_mapped_ / 8, page_bytes());
  if (more > left) more = left;
  if (!take_pages(table + table_mapped_, more)) return false;
  table_mapped_ += more;
  return true;
}

bool ClassHeap::has_pages(std::uint32_t number) const noexcept {
  return number < slab_count_ && slabs_[number].state != SlabState::given_back;
}
// Whether there is a guard page between a slab and the one before it.
bool ClassHeap::has_guard_before(std::uint32_t number) const noexcept {
  const SizeClass& c = size_class();
  return number != 0 && offset_of(c, number) != offset_of(c, number - 1) + c.slab_bytes;
}
// Whether a slab with pages shares a mapping with the one before it, if that has pages.
bool ClassHeap::is_joined(std::uint32_t number) const noexcept {
  return slabs_[number].is_bridged || (number != 0 && !has_guard_before(number));
}
// The number of neighbours with which a slab with pages shares a mapping.
int ClassHeap::joined_neighbours(std::uint32_t number) const noexcept {
  return (is_joined(number) && has_pages(number - 1) ? 1 : 0) +
         (has_pages(number + 1) && is_joined(number + 1) ? 1 : 0);
}

// Whether removing the slab would split a mapping in two while mappings are short.
bool ClassHeap::must_stay(std::uint32_t number) const noexcept {
  return joined_neighbours(number) == 2 && roots.counts->mappings.are_short();
}

// Maps the pages of a slab. If mappings are short, also maps its guard page, which joins the slab
// to the mapping of the one before it.
bool ClassHeap::map_pages(std::uint32_t number) noexcept {
  Slab& slab = slabs_[number];
  const std::uintptr_t begin = address_of(slot_at(number, 0));
  const std::size_t bytes = size_class().slab_bytes;
  const auto map = [&](bool bridge) TS_NO_ANALYSIS {
    slab.is_bridged = bridge;
    const std::size_t guard = bridge ? page_bytes() : 0;
    return take_pages(begin - guard, guard + bytes);
  };
  Mappings& mappings = roots.counts->mappings;
  const bool can_bridge = has_guard_before(number) && has_pages(number - 1);
  const bool bridges = can_bridge && mappings.are_short();
  // The kernel may run out of mappings before our count says so.
  if (!map(bridges) && (bridges || !can_bridge || !map(true))) {
    slab.is_bridged = false;
    return false;
  }
  mappings.of_slabs.fetch_add(1 - joined_neighbours(number), std::memory_order_relaxed);
  return true;
}

// Gives memory to a slab that has none and is in no list.
bool ClassHeap::map_slab(std::uint32_t number) noexcept {
  check(slabs_[number].used_slots == 0 && slabs_[number].waiting_slots == 0,
        "a slab that gets memory has free slots only", &slabs_[number]);
  if (has_memory() && !map_pages(number)) return false;
  slabs_[number].is_discarded = false;
  slabs_[number].canary = make_canary(store_->random.next_64());
  ++mapped_slabs_;
  count_empty(1);
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

// Marks an empty slab as leaving, so that no other thread touches it. False if giving it back would
// change nothing.
bool ClassHeap::take_out(std::uint32_t number) noexcept {
  Slab& slab = slabs_[number];
  check(slab.state == SlabState::empty && slab.used_slots == 0 && slab.waiting_slots == 0,
        "a slab that is given back is empty", &slab);
  const bool stays = has_memory() && must_stay(number);
  if (stays && slab.is_discarded) return false;
  leave(number);
  enter(number, SlabState::leaving);
  slab.is_discarded = stays;
  count_empty(-1);
  return true;
}

// Returns the memory of a slab that is leaving. A slab that was written to after a free keeps its
// memory until that is found: by the malloc that takes the slot, by malloc_trim, or at exit. False
// if the slab is still accessible and empty again: either it has such a write, or returning it
// would take another mapping.
//
// Called without the lock, since other libraries may intercept the calls (os.h). No value read
// here without the lock changes in the meantime.
bool ClassHeap::give_back(std::uint32_t number) noexcept TS_NO_ANALYSIS {
  Slab& slab = slabs_[number];
  const SizeClass& c = size_class();
  std::byte* const memory = slot_at(number, 0);
  bool is_gone = !has_memory();
  bool is_discarded = false;
  if (!is_gone && is_zero(memory, std::size_t{c.slots} * c.slot_bytes)) {
    const std::size_t guard = slab.is_bridged ? page_bytes() : 0;
    is_gone = !slab.is_discarded && give_pages(address_of(memory) - guard, guard + c.slab_bytes);
    is_discarded = !is_gone;
    if (is_discarded) os::discard(memory, c.slab_bytes);
  }
  const Guard guard{lock_};
  slab.is_discarded = is_discarded;
  if (is_gone) {
    if (has_memory())
      roots.counts->mappings.of_slabs.fetch_add(joined_neighbours(number) - 1,
                                                std::memory_order_relaxed);
    slab.is_bridged = false;
    --mapped_slabs_;
    enter(number, SlabState::given_back);
  } else {
    count_empty(1);
    enter(number, SlabState::empty);
  }
  if constexpr (debug_level >= 2) check_slow_path();
  return is_gone;
}

// An empty slab that had to stay between two others may go once one of these has gone.
void ClassHeap::give_back_beside(std::uint32_t number) noexcept {
  constexpr std::uint32_t most = 8;  // in either direction, to bound the time of a free
  const auto may_go = [&](std::uint32_t beside) {
    const Guard guard{lock_};
    return has_pages(beside) && slabs_[beside].state == SlabState::empty &&
           slabs_[beside].is_discarded && take_out(beside);
  };
  const auto goes = [&](std::uint32_t beside) { return may_go(beside) && give_back(beside); };
  for (std::uint32_t i = 1; i <= most && goes(number + i); ++i) continue;
  for (std::uint32_t i = 1; i <= most && i <= number && goes(number - i); ++i) continue;
}

// In address order: each slab that goes makes the next one the first of its mapping.
bool ClassHeap::give_back_empty_slabs() noexcept {
  // Searches from `number` on.
  const auto take_out_next = [&](std::uint32_t& number) {
    const Guard guard{lock_};
    for (; empty_slabs_ != 0 && number < slab_count_; ++number)
      if (slabs_[number].state == SlabState::empty && take_out(number)) return true;
    return false;
  };
  bool gave = false;
  for (std::uint32_t i = 0; take_out_next(i); ++i) gave = give_back(i) || gave;
  return gave;
}

}  // namespace ts::secure
