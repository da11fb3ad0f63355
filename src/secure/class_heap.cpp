#include "secure/class_heap.h"

#include <bit>
#include <cstring>

#include "base/bits.h"

namespace ts::secure {
namespace {

// Empty slabs of a class that keep their memory.
constexpr std::size_t max_empty_bytes = std::size_t{64} << 10;

// Slabs that are not accessible are used again only when there are so many, the oldest first: until
// then, whoever still has a pointer into one dies of it.
constexpr std::uint32_t min_given_back = 32;

// So many slabs of a region have a guard each; further ones share one with their group, within which
// the system takes them for one mapping. It allows a process about 65,000, and without this a
// program with a gigabyte of small blocks had used them up.
constexpr std::uint32_t guarded_slabs = 256;
constexpr std::uint32_t group_slabs = 16;

constexpr std::size_t guarded_bytes(const SizeClass& c) noexcept {
  return std::size_t{guarded_slabs} * c.pitch_bytes;
}
constexpr std::size_t group_bytes(const SizeClass& c) noexcept {
  return std::size_t{group_slabs} * c.slab_bytes + page_bytes;
}

// Where a slab begins in its region.
constexpr std::size_t offset_of(const SizeClass& c, std::uint32_t slab) noexcept {
  if (slab < guarded_slabs) return std::size_t{slab} * c.pitch_bytes;
  const std::uint32_t behind = slab - guarded_slabs;
  return guarded_bytes(c) + behind / group_slabs * group_bytes(c) +
         std::size_t{behind % group_slabs} * c.slab_bytes;
}

// Which slab an offset is in, or behind, and where in it.
struct InSlab {
  std::size_t slab;
  std::size_t offset;
};
constexpr InSlab slab_at(const SizeClass& c, std::size_t offset) noexcept {
  if (offset < guarded_bytes(c)) return {offset / c.pitch_bytes, offset % c.pitch_bytes};
  offset -= guarded_bytes(c);
  const std::size_t group = offset / group_bytes(c);
  const std::size_t in_group = offset % group_bytes(c);
  std::size_t slab = in_group / c.slab_bytes;
  if (slab == group_slabs) --slab;  // the group's guard
  return {guarded_slabs + group * group_slabs + slab, in_group - slab * c.slab_bytes};
}

static_assert([] {
  for (const SizeClass& c : size_classes) {
    for (std::uint32_t slab = guarded_slabs - 2; slab < guarded_slabs + 2 * group_slabs; ++slab) {
      const std::size_t begin = offset_of(c, slab);
      const InSlab first = slab_at(c, begin);
      const InSlab last = slab_at(c, begin + c.slab_bytes - 1);
      if (first.slab != slab || first.offset != 0 || last.slab != slab) return false;
      if (begin + c.slab_bytes > offset_of(c, slab + 1)) return false;
      if (offset_of(c, slab) > std::size_t{slab} * c.pitch_bytes) return false;
    }
  }
  return true;
}());

bool test(const std::uint64_t* bits, unsigned slot) noexcept {
  return (bits[slot / 64] >> slot % 64 & 1) != 0;
}
void set(std::uint64_t* bits, unsigned slot) noexcept {
  bits[slot / 64] |= std::uint64_t{1} << slot % 64;
}
void clear(std::uint64_t* bits, unsigned slot) noexcept {
  bits[slot / 64] &= ~(std::uint64_t{1} << slot % 64);
}

// Slots as numbers that are not 0, for the quarantine.
std::uint32_t ticket_of(std::uint32_t slab, unsigned slot) noexcept {
  return slab * max_slab_slots + slot + 1;
}

// The first byte of it in memory is zero, which ends a string before it reads the others.
constexpr std::uint64_t canary_mask = ~std::uint64_t{0xff};

}  // namespace

bool is_zero(const std::byte* begin, std::size_t bytes) noexcept {
  using Words = std::uint64_t __attribute__((vector_size(32)));
  const std::byte* const end = begin + bytes;
  while (static_cast<std::size_t>(end - begin) >= 2 * sizeof(Words)) {
    Words words[2];
    std::memcpy(words, begin, sizeof words);
    words[0] |= words[1];
    if ((words[0][0] | words[0][1] | words[0][2] | words[0][3]) != 0) return false;
    begin += sizeof words;
  }
  std::uint64_t any = 0;
  for (; begin != end; begin += sizeof any) {
    std::uint64_t word = 0;
    std::memcpy(&word, begin, sizeof word);
    any |= word;
  }
  return any == 0;
}

// ---- lists ----

SlabList* ClassHeap::list_of(SlabState state) noexcept {
  switch (state) {
    case SlabState::partial:
      return &partial_;
    case SlabState::empty:
      return &empty_;
    case SlabState::given_back:
      return &given_back_;
    default:
      return nullptr;
  }
}

void ClassHeap::enter(std::uint32_t number, SlabState state) noexcept {
  Slab& slab = slabs_[number];
  slab.state = state;
  SlabList* const list = list_of(state);
  if (list == nullptr) return;
  slab.next = 0;
  slab.before = list->last;
  (list->last == 0 ? list->first : slabs_[list->last - 1].next) = number + 1;
  list->last = number + 1;
}

void ClassHeap::leave(std::uint32_t number) noexcept {
  const Slab& slab = slabs_[number];
  SlabList* const list = list_of(slab.state);
  if (list == nullptr) return;
  (slab.before == 0 ? list->first : slabs_[slab.before - 1].next) = slab.next;
  (slab.next == 0 ? list->last : slabs_[slab.next - 1].before) = slab.before;
}

// ---- where things are ----

// The region begins at a random page of its range, so that nothing is known of the places of one
// class by those of another.
bool ClassHeap::open(unsigned number) noexcept {
  const unsigned class_number = number % regions_per_arena;
  const std::uintptr_t table = table_begin(number);
  constexpr std::size_t store_bytes = align_up(sizeof(ClassStore), alignof(Slab));
  if (!take_pages(table, page_bytes)) return false;
  table_mapped_ = page_bytes;
  store_ = reinterpret_cast<ClassStore*>(table);
  slabs_ = reinterpret_cast<Slab*>(table + store_bytes);
  constexpr std::size_t roomy = std::size_t{1} << 30;
  const std::size_t bytes = region_bytes();
  const std::size_t pages = bytes >= roomy ? bytes / 2 / page_bytes : 1;
  const std::size_t offset = store_->random.next_64() % pages * page_bytes;
  const std::size_t by_region = (bytes - offset) / size_classes[class_number].pitch_bytes;
  const std::size_t by_table = (table_bytes() - store_bytes) / sizeof(Slab);
  capacity_ = static_cast<std::uint32_t>(by_region < by_table ? by_region : by_table);
  class_number_ = class_number;
  region_ = region_begin(number) + offset;
  return true;
}

std::byte* ClassHeap::slot_at(std::uint32_t slab, unsigned slot) const noexcept {
  const SizeClass& c = size_class();
  return reinterpret_cast<std::byte*>(region_ + offset_of(c, slab) +
                                      std::size_t{slot} * c.slot_bytes);
}

ClassHeap::Place ClassHeap::place_of(const void* p) noexcept {
  const std::uintptr_t offset = address_of(p) - region_;
  if (!is_open() || address_of(p) < region_) return {};
  const SizeClass& c = size_class();
  const InSlab in = slab_at(c, offset);
  const auto in_slab = static_cast<std::uint32_t>(in.offset);
  const std::uint32_t slot = in_slab / c.slot_bytes;
  if (in.slab >= slab_count_ || slot >= c.slots || slot * c.slot_bytes != in_slab) return {};
  return {&slabs_[in.slab], static_cast<std::uint32_t>(in.slab), slot};
}

bool ClassHeap::is_canary_intact(const Place& place) noexcept {
  if (!has_memory()) return true;
  std::uint64_t found = 0;
  const std::byte* const block = slot_at(place.number, place.slot);
  std::memcpy(&found, block + size_class().block_bytes, canary_bytes);
  return found == place.slab->canary;
}

Finding ClassHeap::look_at(const Place& place) noexcept {
  if (place.slab == nullptr) return Finding::no_beginning;
  if (!test(place.slab->used, place.slot)) return Finding::not_in_use;
  return is_canary_intact(place) ? Finding::sound : Finding::overflow;
}

Finding ClassHeap::look_at(const void* p) noexcept {
  const Guard guard{lock_};
  return look_at(place_of(p));
}

// ---- slabs ----

bool ClassHeap::extend_table(std::uint32_t slabs) noexcept {
  const std::uintptr_t table = address_of(store_);
  const std::size_t needed = address_of(slabs_ + slabs) - table;
  if (needed <= table_mapped_) return true;
  // An eighth ahead, so that a large table grows by few calls.
  const std::size_t left = table_bytes() - table_mapped_;
  std::size_t more = align_up(needed - table_mapped_ + table_mapped_ / 8, page_bytes);
  if (more > left) more = left;
  if (!take_pages(table + table_mapped_, more)) return false;
  table_mapped_ += more;
  return true;
}

// Memory for a slab that has none, and is in no list.
bool ClassHeap::map_slab(std::uint32_t number) noexcept {
  if (has_memory() && !take_pages(address_of(slot_at(number, 0)), size_class().slab_bytes))
    return false;
  slabs_[number].canary = store_->random.next_64() & canary_mask;
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

// One that has a slot to hand out, as `empty` or `partial`.
ClassHeap::Refusal ClassHeap::slab_with_room(std::uint32_t& number) noexcept {
  const std::uint32_t found = partial_.first != 0 ? partial_.first : empty_.first;
  if (found == 0) return add_slab(number);
  number = found - 1;
  return Refusal::none;
}

// Any of those that can be handed out, each as likely as the others.
unsigned ClassHeap::random_slot(const Slab& slab) noexcept {
  const std::uint32_t free = size_class().slots - slab.used_slots - slab.waiting_slots;
  std::uint32_t rank = store_->random.below(free);
  for (unsigned word = 0;; ++word) {
    std::uint64_t bits = ~(slab.used[word] | slab.waiting[word]);
    const auto here = static_cast<std::uint32_t>(std::popcount(bits));
    if (rank >= here) {
      rank -= here;
      continue;
    }
    // Bits behind the last slot come after all others, and so does their rank.
    for (; rank != 0; --rank) bits &= bits - 1;
    return word * 64 + static_cast<unsigned>(std::countr_zero(bits));
  }
}

ClassHeap::Allocation ClassHeap::allocate(unsigned number) noexcept {
  const Guard guard{lock_};
  if (!is_open() && !open(number)) [[unlikely]]
    return {nullptr, Refusal::no_memory, false};
  std::uint32_t slab_number = 0;
  const Refusal refusal = slab_with_room(slab_number);
  if (refusal != Refusal::none) [[unlikely]]
    return {nullptr, refusal, false};
  Slab& slab = slabs_[slab_number];
  const unsigned slot = random_slot(slab);
  const bool is_last = slab.used_slots + slab.waiting_slots + 1U == size_class().slots;
  if (slab.state == SlabState::empty || is_last) {
    if (slab.state == SlabState::empty) --empty_slabs_;
    leave(slab_number);
    enter(slab_number, is_last ? SlabState::full : SlabState::partial);
  }
  set(slab.used, slot);
  ++slab.used_slots;
  std::byte* const block = slot_at(slab_number, slot);
  if (!has_memory()) return {block, Refusal::none, false};
  auto* const canary = reinterpret_cast<std::uint64_t*>(block + size_class().block_bytes);
  const bool is_written = *canary != 0;
  *canary = slab.canary;
  return {block, Refusal::none, is_written};
}

Finding ClassHeap::release(const void* p, bool ignores_canary) noexcept {
  const Guard guard{lock_};
  const Place place = place_of(p);
  const Finding finding = look_at(place);
  if (finding != Finding::sound && !(finding == Finding::overflow && ignores_canary)) [[unlikely]]
    return finding;
  Slab& slab = *place.slab;
  clear(slab.used, place.slot);
  set(slab.waiting, place.slot);
  --slab.used_slots;
  ++slab.waiting_slots;
  if (has_memory()) std::memset(slot_at(place.number, place.slot), 0, size_class().slot_bytes);
  const std::uint32_t ticket = store_->quarantine.exchange(ticket_of(place.number, place.slot),
                                                           size_class().waiting, store_->random);
  if (ticket != 0) settle((ticket - 1) / max_slab_slots, (ticket - 1) % max_slab_slots);
  return Finding::sound;
}

// A slot has waited for long enough.
void ClassHeap::settle(std::uint32_t number, unsigned slot) noexcept {
  Slab& slab = slabs_[number];
  clear(slab.waiting, slot);
  --slab.waiting_slots;
  const bool is_empty = slab.used_slots == 0 && slab.waiting_slots == 0;
  if (!is_empty && slab.state == SlabState::partial) return;
  leave(number);
  enter(number, is_empty ? SlabState::empty : SlabState::partial);
  if (!is_empty) return;
  ++empty_slabs_;
  if (std::size_t{empty_slabs_ - 1} * size_class().slab_bytes >= max_empty_bytes)
    give_back(empty_.first - 1);
}

// Of an empty slab. What was written to its free memory is gone with it, before anybody got it.
bool ClassHeap::give_back(std::uint32_t number) noexcept {
  if (has_memory() && !give_pages(address_of(slot_at(number, 0)), size_class().slab_bytes))
    return false;
  leave(number);
  enter(number, SlabState::given_back);
  --empty_slabs_;
  --mapped_slabs_;
  return true;
}

bool ClassHeap::give_back_empty_slabs() noexcept {
  const Guard guard{lock_};
  bool gave = false;
  while (empty_.first != 0 && give_back(empty_.first - 1)) gave = true;
  return gave;
}

// ---- all of it ----

// The first damage in a slab that has memory.
ClassHeap::Damage ClassHeap::find_damage(std::uint32_t number) noexcept {
  const SizeClass& c = size_class();
  Slab& slab = slabs_[number];
  for (unsigned slot = 0; slot < c.slots; ++slot) {
    const std::byte* const block = slot_at(number, slot);
    if (test(slab.used, slot)) {
      if (!is_canary_intact({&slab, number, slot})) return {Finding::overflow, block};
    } else if (!is_zero(block, c.slot_bytes)) {
      return {Finding::write_after_free, block};
    }
  }
  return {Finding::sound, nullptr};
}

ClassHeap::Damage ClassHeap::find_damage() noexcept {
  const Guard guard{lock_};
  for (std::uint32_t i = 0; has_memory() && i < slab_count_; ++i) {
    if (slabs_[i].state == SlabState::given_back) continue;
    const Damage damage = find_damage(i);
    if (damage.finding != Finding::sound) return damage;
  }
  return {Finding::sound, nullptr};
}

bool ClassHeap::walk(unsigned arena, BlockVisitor visit, void* argument) noexcept {
  const Guard guard{lock_};
  for (std::uint32_t i = 0; i < slab_count_; ++i) {
    const Slab& slab = slabs_[i];
    if (slab.state == SlabState::given_back) continue;
    for (unsigned slot = 0; slot < size_class().slots; ++slot) {
      const BlockState state = test(slab.used, slot)      ? BlockState::used
                               : test(slab.waiting, slot) ? BlockState::cached
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
    if (slab.state == SlabState::given_back) continue;
    totals.mapped_bytes += c.slab_bytes;
    totals.used_bytes += std::size_t{slab.used_slots} * c.slot_bytes;
    totals.waiting_bytes += std::size_t{slab.waiting_slots} * c.slot_bytes;
    totals.free_slots += c.slots - slab.used_slots;
  }
  totals.maps = maps_;
  return totals;
}

bool ClassHeap::is_valid() noexcept {
  const Guard guard{lock_};
  std::uint32_t mapped = 0;
  std::uint32_t empty = 0;
  for (std::uint32_t i = 0; i < slab_count_; ++i) {
    const Slab& slab = slabs_[i];
    unsigned used = 0;
    unsigned waiting = 0;
    for (unsigned word = 0; word < Slab::words; ++word) {
      if ((slab.used[word] & slab.waiting[word]) != 0) return false;
      used += static_cast<unsigned>(std::popcount(slab.used[word]));
      waiting += static_cast<unsigned>(std::popcount(slab.waiting[word]));
    }
    if (used != slab.used_slots || waiting != slab.waiting_slots) return false;
    const unsigned taken = used + waiting;
    const bool is_given_back = slab.state == SlabState::given_back;
    const SlabState expected = taken == 0                   ? SlabState::empty
                               : taken < size_class().slots ? SlabState::partial
                                                            : SlabState::full;
    if (is_given_back ? taken != 0 : slab.state != expected) return false;
    mapped += is_given_back ? 0 : 1;
    empty += slab.state == SlabState::empty ? 1 : 0;
    if (!is_given_back && has_memory() && find_damage(i).finding != Finding::sound) return false;
  }
  return mapped == mapped_slabs_ && empty == empty_slabs_;
}

}  // namespace ts::secure
