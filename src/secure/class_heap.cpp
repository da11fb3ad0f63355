#include "secure/class_heap.h"

#include <cstring>

#include "base/bits.h"
#include "base/check.h"
#include "secure/checks.h"
#include "secure/mappings.h"
#include "secure/slab_layout.h"

namespace ts::secure {
namespace {

// How much memory empty slabs may keep: max_empty_bytes per class heap in any case, and
// max_kept_bytes as long as all class heaps together keep no more than max_kept_in_all. Otherwise a
// program whose threads pass on thousands of blocks would wait for the kernel more than for the
// heap.
constexpr std::size_t max_empty_bytes = std::size_t{64} << 10;
constexpr std::size_t max_kept_bytes = std::size_t{1} << 20;
constexpr std::int64_t max_kept_in_all = std::int64_t{8} << 20;

// Slots are cleared under the lock if that is faster than taking the lock again. (With long OS
// pages, slabs have more slots than a word has bits.)
bool is_cleared_under_lock(const SizeClass& c) noexcept {
  constexpr std::size_t most = 512;
  return c.slot_bytes <= most || c.slots > max_leaving_slots;
}

}  // namespace

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
  if constexpr (debug_level >= 1) require_none(find_slot_fault(slab, size_class()));
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
  check((slab.before == 0 ? list->first : slabs_[slab.before - 1].next) == number + 1 &&
            (slab.next == 0 ? list->last : slabs_[slab.next - 1].before) == number + 1,
        "a slab leaves a list that it is not in", &slab);
  (slab.before == 0 ? list->first : slabs_[slab.before - 1].next) = slab.next;
  (slab.next == 0 ? list->last : slabs_[slab.next - 1].before) = slab.before;
}

void ClassHeap::count_empty(int change) noexcept {
  empty_slabs_ += static_cast<std::uint32_t>(change);
  if (has_memory())
    roots.counts->empty_bytes.fetch_add(change * std::int64_t{size_class().slab_bytes},
                                        std::memory_order_relaxed);
}

// ---- regions and places ----

// The region begins at a random page of its range, so that positions in one region reveal nothing
// about those in another.
bool ClassHeap::open(unsigned number) noexcept {
  const unsigned class_number = number % regions_per_arena;
  const std::uintptr_t table = table_begin(number);
  constexpr std::size_t store_bytes = align_up(sizeof(ClassStore), alignof(Slab));
  if (!take_pages(table, page_bytes())) return false;
  table_mapped_ = page_bytes();
  store_ = reinterpret_cast<ClassStore*>(table);
  slabs_ = reinterpret_cast<Slab*>(table + store_bytes);
  constexpr std::size_t roomy = std::size_t{1} << 30;
  const std::size_t bytes = region_bytes();
  const std::size_t pages = bytes >= roomy ? bytes / 2 / page_bytes() : 1;
  const std::size_t offset = store_->random.next_64() % pages * page_bytes();
  const std::size_t by_region = (bytes - offset) / size_class_of(class_number).pitch_bytes;
  const std::size_t by_table = (table_bytes() - store_bytes) / sizeof(Slab);
  capacity_ = static_cast<std::uint32_t>(by_region < by_table ? by_region : by_table);
  class_number_ = class_number;
  region_.store(region_begin(number) + offset, std::memory_order_release);
  return true;
}

std::byte* ClassHeap::slot_at(std::uint32_t slab, unsigned slot) const noexcept {
  const SizeClass& c = size_class();
  const std::uintptr_t region = region_.load(std::memory_order_relaxed);
  return reinterpret_cast<std::byte*>(region + offset_of(c, slab) +
                                      std::size_t{slot} * c.slot_bytes);
}

// Needs no lock: what it reads is constant once the heap is open, and whoever was given a block has
// seen it open.
ClassHeap::Place ClassHeap::place_of(const void* p) const noexcept TS_NO_ANALYSIS {
  const std::uintptr_t region = region_.load(std::memory_order_acquire);
  const std::uintptr_t offset = address_of(p) - region;
  if (region == 0 || address_of(p) < region) return {};
  const SizeClass& c = size_class();
  const InSlab in = slab_at(c, offset);
  const std::size_t slot = quotient(in.offset / min_alignment, c.by_slot);
  if (in.slab >= capacity_ || slot >= c.slots || slot * c.slot_bytes != in.offset) return {};
  return {&slabs_[in.slab], static_cast<std::uint32_t>(in.slab), static_cast<unsigned>(slot),
          reinterpret_cast<std::byte*>(region + offset)};
}

// The requested size; no_size if the block's tail is damaged.
std::size_t ClassHeap::asked_at(const Place& place) noexcept {
  if (!has_memory()) return 0;
  const SizeClass& c = size_class();
  const std::size_t known = c.is_long() ? place.slab->asked[place.slot] : 0;
  return asked_by_tail(place.block, c, place.slab->canary, known);
}

// Whether the word before a block is as it should be: the end of a tail, or zero.
bool ClassHeap::is_intact_before(const Place& place) noexcept {
  if (!has_memory() || place.slot == 0) return true;
  const Slab& slab = *place.slab;
  const SizeClass& c = size_class();
  const unsigned before = place.slot - 1;
  if (is_leaving(slab, before)) return true;
  const std::uint64_t word = word_at(place.block - canary_bytes);
  if (!slab.is_used(before)) return word == 0;
  return c.is_long() ? word == last_word(c, slab.asked[before], slab.canary)
                     : length_of_end_word(word, slab.canary) <= c.block_bytes;
}

ClassHeap::Seen ClassHeap::look_at(const Place& place) noexcept {
  if (place.slab == nullptr || place.number >= slab_count_) return {Finding::no_beginning, 0};
  if (!place.slab->is_used(place.slot)) return {Finding::not_in_use, 0};
  const std::size_t asked = asked_at(place);
  if (asked == no_size) return {Finding::overflow, size_class().block_bytes};
  return {is_intact_before(place) ? Finding::sound : Finding::underflow, asked};
}

ClassHeap::Seen ClassHeap::look_at(const void* p) noexcept {
  const Place place = place_of(p);
  const Guard guard{lock_};
  return look_at(place);
}

// ---- slabs ----

// Finds a slab with a free slot, in state empty or partial.
ClassHeap::Refusal ClassHeap::slab_with_room(std::uint32_t& number) noexcept {
  const std::uint32_t found = partial_.first != 0 ? partial_.first : empty_.first;
  if (found == 0) return add_slab(number);
  number = found - 1;
  return Refusal::none;
}

// Picks a free slot; each is equally likely.
unsigned ClassHeap::random_slot(const Slab& slab) noexcept {
  const std::uint32_t free = size_class().slots - slab.used_slots - slab.waiting_slots;
  check(free - 1 < size_class().slots, "a slab with room has a free slot", &slab);
  std::uint32_t rank = store_->random.below(free);
  for (unsigned word = 0;; ++word) {
    // Bits beyond the last slot come last, so no rank reaches them.
    const std::uint64_t bits = ~(slab.bits[word].used | slab.bits[word].waiting);
    const BitCounts counts = count_bits(bits);
    const std::uint32_t here = counts.all();
    if (rank < here) return word * 64 + place_of_bit(bits, counts, rank);
    rank -= here;
  }
}

// Malloc and free are flattened: they run in one piece while other threads wait for the lock.
[[gnu::flatten]] ClassHeap::Allocation ClassHeap::allocate(unsigned number,
                                                           std::size_t bytes) noexcept {
  const Guard guard{lock_};
  if (!is_open() && !open(number)) [[unlikely]]
    return {nullptr, Refusal::no_memory, false};
  std::uint32_t slab_number = 0;
  const Refusal refusal = slab_with_room(slab_number);
  if (refusal != Refusal::none) [[unlikely]]
    return {nullptr, refusal, false};
  Slab& slab = slabs_[slab_number];
  const unsigned slot = random_slot(slab);
  check(slot < size_class().slots && !slab.is_used(slot) && !slab.is_waiting(slot),
        "a slot that is handed out was free", &slab);
  const bool is_last = slab.used_slots + slab.waiting_slots + 1U == size_class().slots;
  const bool changes_list = slab.state == SlabState::empty || is_last;
  if (changes_list) {
    if (slab.state == SlabState::empty) count_empty(-1);
    slab.is_discarded = false;
    leave(slab_number);
    enter(slab_number, is_last ? SlabState::full : SlabState::partial);
  }
  slab.bits[slot / 64].used |= bit_of(slot);
  ++slab.used_slots;
  if constexpr (debug_level >= 2) {
    if (changes_list) check_slow_path();
  }
  std::byte* const block = slot_at(slab_number, slot);
  if (!has_memory()) return {block, Refusal::none, false};
  const SizeClass& c = size_class();
  const bool is_written = !are_zero(block, c, tail_words(c, bytes));
  if (c.is_long()) slab.asked[slot] = static_cast<std::uint32_t>(bytes);
  write_tail(block, c, bytes, slab.canary);
  return {block, Refusal::none, is_written};
}

bool ClassHeap::resize(const void* p, std::size_t bytes) noexcept {
  const Place place = place_of(p);
  const Guard guard{lock_};
  const Seen seen = look_at(place);
  if (seen.finding != Finding::sound || !has_memory()) return false;
  std::byte* const block = place.block;
  // Clears the old tail and the contents beyond the new end.
  erase_tail(block, size_class(), seen.bytes);
  for (std::size_t at = bytes; at < seen.bytes;) {
    const std::size_t to_page = min_page_bytes - address_of(block + at) % min_page_bytes;
    const std::size_t here = to_page < seen.bytes - at ? to_page : seen.bytes - at;
    if (here != min_page_bytes || !is_zero(block + at, here)) clear_bytes(block + at, here);
    at += here;
  }
  if (size_class().is_long()) place.slab->asked[place.slot] = static_cast<std::uint32_t>(bytes);
  write_tail(block, size_class(), bytes, place.slab->canary);
  return true;
}

// Puts a slot that is zeroed and in no list into the quarantine.
std::uint32_t ClassHeap::put_away(std::uint32_t number, unsigned slot) noexcept {
  const std::uint32_t ticket =
      store_->quarantine.exchange(ticket_of(number, slot), size_class().waiting, store_->random);
  if (ticket == 0) return 0;
  const std::uint32_t leaving = settle(slab_of_ticket(ticket), slot_of_ticket(ticket));
  if constexpr (debug_level >= 2) check_slow_path();
  return leaving;
}

// Short slots are cleared under the lock. A longer one is marked as leaving, so that no other
// thread hands it out or inspects it, and cleared without the lock, which is then taken again.
[[gnu::flatten]] Finding ClassHeap::release(const void* p, bool ignores_damage) noexcept {
  const Place place = place_of(p);
  __builtin_prefetch(place.slab, 1);
  std::size_t slot_bytes = 0;
  std::uint32_t leaving = 0;
  bool is_cleared = false;
  {
    const Guard guard{lock_};
    const Finding finding = look_at(place).finding;
    if (finding != Finding::sound && !(is_damage(finding) && ignores_damage)) [[unlikely]]
      return finding;
    Slab& slab = *place.slab;
    slab.bits[place.slot / 64].used &= ~bit_of(place.slot);
    slab.bits[place.slot / 64].waiting |= bit_of(place.slot);
    --slab.used_slots;
    ++slab.waiting_slots;
    slot_bytes = has_memory() ? size_class().slot_bytes : 0;
    is_cleared = is_cleared_under_lock(size_class());
    if (is_cleared) {
      clear_bytes(place.block, slot_bytes);
      leaving = put_away(place.number, place.slot);
    } else {
      slab.leaving |= std::uint64_t{1} << place.slot;
    }
  }
  if (!is_cleared) {
    make_zero(place.block, slot_bytes);
    const Guard guard{lock_};
    place.slab->leaving &= ~(std::uint64_t{1} << place.slot);
    leaving = put_away(place.number, place.slot);
  }
  if (leaving != 0) [[unlikely]] {
    if (give_back(leaving - 1)) give_back_beside(leaving - 1);
  }
  return Finding::sound;
}

// A slot leaves the quarantine and becomes free.
std::uint32_t ClassHeap::settle(std::uint32_t number, unsigned slot) noexcept {
  Slab& slab = slabs_[number];
  check(number < slab_count_ && slab.is_waiting(slot),
        "a slot that leaves the quarantine was waiting", &slab);
  slab.bits[slot / 64].waiting &= ~bit_of(slot);
  --slab.waiting_slots;
  const bool is_empty = slab.used_slots == 0 && slab.waiting_slots == 0;
  if (!is_empty && slab.state == SlabState::partial) return 0;
  leave(number);
  enter(number, is_empty ? SlabState::empty : SlabState::partial);
  if (!is_empty) return 0;
  count_empty(1);
  const std::size_t others = std::size_t{empty_slabs_ - 1} * size_class().slab_bytes;
  const std::int64_t in_all = roots.counts->empty_bytes.load(std::memory_order_relaxed);
  if (others < (in_all <= max_kept_in_all ? max_kept_bytes : max_empty_bytes)) return 0;
  // Give back the slab that has been empty longest, or this one if that cannot go.
  const std::uint32_t first = empty_.first - 1;
  if (take_out(first)) return first + 1;
  return first != number && take_out(number) ? number + 1 : 0;
}

}  // namespace ts::secure
