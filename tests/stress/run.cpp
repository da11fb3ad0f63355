#include "stress/run.h"

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "programs/support/content.h"
#include "programs/support/team.h"

namespace ts::stress {

using test::Content;
using test::MappedArray;
using test::Random;

namespace {

// How many threads follow one another on a relay seat in every round.
constexpr std::size_t relay_legs = 4;
constexpr std::size_t boxes_per_seat = 16;

// The blocks of a heap as a walk reports them.
class Walked {
 public:
  explicit Walked(AnyHeap& heap) : blocks_{count(heap)} {
    heap.walk(
        [](const BlockView& block, void* self) {
          auto& walked = *static_cast<Walked*>(self);
          walked.blocks_[walked.size_++] = block;
          return true;
        },
        this);
  }

  const BlockView* begin() const { return blocks_.begin(); }
  const BlockView* end() const { return blocks_.begin() + size_; }

  // Headers included.
  std::size_t total_bytes() const {
    std::size_t bytes = 0;
    for (const BlockView& block : *this) bytes += block.bytes + classic::tag_bytes;
    return bytes;
  }

 private:
  static std::size_t count(AnyHeap& heap) {
    std::size_t blocks = 0;
    heap.walk(
        [](const BlockView&, void* counter) {
          ++*static_cast<std::size_t*>(counter);
          return true;
        },
        &blocks);
    return blocks;
  }

  std::size_t size_ = 0;
  MappedArray<BlockView> blocks_;
};

}  // namespace

Run::Run(const char* name, AnyHeap& heap, const Setting& setting, const Plan& plan)
    : name_{name},
      heap_{heap},
      setting_{setting},
      plan_{plan},
      seats_{plan.seats},
      places_{plan.seats * plan.places},
      office_{plan.seats * boxes_per_seat} {
  for (std::size_t i = 0; i < plan.seats; ++i) {
    seats_[i].number = i;
    seats_[i].random = Random{test::seed_of(plan.seed, i)};
    seats_[i].places = &places_[i * plan.places];
  }
}

Run::Totals Run::run() {
  std::barrier pause{static_cast<std::ptrdiff_t>(plan_.seats), [this]() noexcept {
                       require_consistent();
                       ++round_;
                     }};
  test::run_team(plan_.seats, [&](std::uint32_t number) {
    for (std::size_t round = 0; round < plan_.rounds; ++round) {
      sit(seats_[number]);
      pause.arrive_and_wait();
    }
  });
  require_consistent();  // the threads have ended, their blocks remain
  release_everything();

  Totals sum{};
  for (const Seat& seat : seats_) {
    sum.allocations += seat.totals.allocations;
    sum.foreign_frees += seat.totals.foreign_frees;
    sum.refusals += seat.totals.refusals;
    sum.threads += seat.totals.threads;
  }
  sum.threads += plan_.seats;
  require(sum.allocations != 0 && sum.foreign_frees != 0, "the run exercised nothing");
  return sum;
}

// A round at one seat. Even seats have one thread for the whole run; on the others short-lived
// threads follow one another, each taking over the blocks that its predecessor left behind.
void Run::sit(Seat& seat) {
  if (seat.number % 2 == 0) return work(seat, plan_.operations);
  for (std::size_t leg = 0; leg < relay_legs; ++leg) {
    std::thread{[&] { work(seat, plan_.operations / relay_legs); }}.join();
    ++seat.totals.threads;
  }
}

void Run::work(Seat& seat, std::size_t operations) {
  for (std::size_t i = 0; i < operations; ++i) step(seat);
}

void Run::step(Seat& seat) {
  Held& place = seat.places[seat.random.below(plan_.places)];
  if (seat.random.one_in(6)) return serve_post(seat, place);
  if (place.address == nullptr) return allocate(seat, place);
  switch (seat.random.below(8)) {
    case 0:
    case 1:
      return resize(seat, place);
    case 2:
      return require_intact(place, place.bytes);
    case 3:
    case 4:
      if (office_.post(seat.random.below(office_.boxes()), place)) place = Held{};
      return;
    default:
      return release(place);
  }
}

// Takes a block out of the post office, and frees or keeps it.
void Run::serve_post(Seat& seat, Held& place) {
  Held parcel{};
  if (!office_.take(seat.random.below(office_.boxes()), parcel)) return;
  require_intact(parcel, parcel.bytes);
  if (place.address == nullptr && seat.random.one_in(4)) {
    place = parcel;
  } else {
    release(parcel);
  }
  ++seat.totals.foreign_frees;
}

void Run::allocate(Seat& seat, Held& place) {
  const std::size_t bytes = random_bytes(seat.random);
  const bool aligned = seat.random.one_in(5);
  const std::size_t alignment = aligned ? std::size_t{16} << seat.random.below(9) : min_alignment;
  auto* const address = static_cast<std::byte*>(heap_.allocate(bytes, alignment));
  if (address == nullptr) {
    require(setting_.may_refuse, "an unbounded heap refused a request");
    ++seat.totals.refusals;
    return;
  }
  require(address_of(address) % alignment == 0, "a block is not aligned as asked", address);
  require(heap_.usable_size(address) >= bytes, "a block is smaller than asked", address);
  place = {address, bytes, alignment, seat.number << 8 | (++seat.totals.allocations & 0xff)};
  write(place);
}

void Run::resize(Seat& seat, Held& place) {
  const std::size_t bytes = random_bytes(seat.random);
  require_intact(place, place.bytes);
  const std::size_t usable = heap_.usable_size(place.address);
  if (!heap_.resize(place.address, bytes)) {
    require(heap_.usable_size(place.address) == usable, "a refused resize changed the block",
            place.address);
    return move(seat, place, bytes);
  }
  require(heap_.usable_size(place.address) >= bytes, "a resized block is smaller than asked",
          place.address);
  require_intact(place, std::min(place.bytes, bytes));
  place.bytes = bytes;
  write(place);
}

// What realloc does if the block cannot stay.
void Run::move(Seat& seat, Held& place, std::size_t bytes) {
  Held old = place;
  place = Held{};
  auto* const address = static_cast<std::byte*>(heap_.allocate(bytes, old.alignment));
  if (address == nullptr) {
    require(setting_.may_refuse, "an unbounded heap refused a request");
    ++seat.totals.refusals;
    place = old;
    return;
  }
  place = {address, bytes, old.alignment, old.key};
  write(place);
  release(old);
}

void Run::release(Held& place) {
  require_intact(place, place.bytes);
  heap_.release(place.address);
  place = Held{};
}

// Mostly small, sometimes large.
std::size_t Run::random_bytes(Random& random) const {
  const std::size_t kind = random.below(100);
  std::size_t most = 128;
  if (kind >= 60) most = 1 << 10;
  if (kind >= 85) most = 16 << 10;
  if (kind >= 99) most = 256 << 10;
  return random.between(0, std::min(most, setting_.max_bytes));
}

void Run::write(const Held& held) {
  Content{held.address, held.bytes, held.key}.write(held.address, held.bytes);
}

// The first `bytes` of the block are what its holder wrote.
void Run::require_intact(const Held& held, std::size_t bytes) {
  const std::size_t damage =
      Content{held.address, held.bytes, held.key}.first_damage(held.address, bytes);
  if (damage != test::intact)
    require(false, "the contents of a live block changed", held.address + damage);
}

void Run::require_consistent() {
  require(heap_.is_valid(), "the heap is not valid");
  require_blocks_match_walk();

  const Walked walked{heap_};
  HeapMeasures counted{};
  for (const BlockView& block : walked) {
    if (block.state == BlockState::used) continue;
    ++counted.free_blocks;
    counted.free_bytes += block.bytes + classic::tag_bytes;
    if (block.state == BlockState::cached) counted.cached_bytes += block.bytes + classic::tag_bytes;
  }
  const HeapMeasures told = heap_.measures();
  require(told.free_blocks == counted.free_blocks, "measures tell another number of free blocks");
  require(told.free_bytes == counted.free_bytes, "measures tell another size of the free blocks");
  require(told.cached_bytes == counted.cached_bytes, "measures tell another size of the caches");
  require(told.segment_bytes == walked.total_bytes() + told.chunks * heap_.chunk_overhead_bytes(),
          "the segment is not the sum of its blocks");
}

// The used blocks are exactly those that threads hold: none is lost, none is held twice.
void Run::require_blocks_match_walk() {
  MappedArray<Held> held{places_.size() + office_.boxes()};
  Held* held_end = std::copy_if(places_.begin(), places_.end(), held.begin(),
                                [](const Held& h) { return h.address != nullptr; });
  for (std::size_t box = 0; box < office_.boxes(); ++box) {
    if (const Held* parcel = office_.look(box)) *held_end++ = *parcel;
  }
  std::sort(held.begin(), held_end,
            [](const Held& a, const Held& b) { return a.address < b.address; });

  const Walked walked{heap_};
  MappedArray<BlockView> used{static_cast<std::size_t>(walked.end() - walked.begin())};
  BlockView* const used_end =
      std::copy_if(walked.begin(), walked.end(), used.begin(),
                   [](const BlockView& b) { return b.state == BlockState::used; });
  std::sort(used.begin(), used_end,
            [](const BlockView& a, const BlockView& b) { return a.payload < b.payload; });

  const BlockView* block = used.begin();
  for (const Held* h = held.begin(); h != held_end; ++h, ++block) {
    require(block != used_end, "a block that is held is not in use", h->address);
    require(block->payload >= h->address, "a block is in use that nobody holds", block->payload);
    require(block->payload == h->address, "a block that is held is not in use", h->address);
    require(block->bytes >= h->bytes, "a block is smaller than what is in it", h->address);
    require_intact(*h, h->bytes);
  }
  require(block == used_end, "a block is in use that nobody holds",
          block == used_end ? nullptr : block->payload);
}

void Run::release_everything() {
  for (std::size_t box = 0; box < office_.boxes(); ++box) {
    Held parcel{};
    if (office_.take(box, parcel)) release(parcel);
  }
  for (Held& place : places_) {
    if (place.address != nullptr) release(place);
  }
  require_consistent();
  require(heap_.measures().free_bytes == Walked{heap_}.total_bytes(),
          "not all memory is free after the last block was freed");
  heap_.trim(0);
  require_consistent();
}

void Run::require(bool holds, const char* what, const void* where) {
  if (holds) [[likely]]
    return;
  std::fprintf(stderr, "FAILED: %s: round %zu: %s (%p)\n", name_, round_, what, where);
  std::abort();
}

}  // namespace ts::stress
