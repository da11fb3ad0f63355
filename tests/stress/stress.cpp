// The stress test: random work of many threads on one cell of the matrix, every block's contents
// checked: they allocate, align, resize, free their own blocks and others', come and go and leave
// blocks behind. Repeatable up to the interleaving of the threads: the seed decides what each of them
// does.
//
//   stress STRATEGY FIT SETTING [--seed N] [--seconds N] [--seats N] [--rounds N] [--operations N]
#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "any_heap.h"
#include "classic/config.h"
#include "programs/allocator.h"
#include "programs/support/arguments.h"
#include "programs/support/content.h"
#include "programs/support/mapped_array.h"
#include "programs/support/random.h"
#include "programs/support/team.h"
#include "stress/post_office.h"

namespace ts::stress {
namespace {

using test::Content;
using test::MappedArray;
using test::Random;
using testing::AnyHeap;
using testing::Cell;
using testing::cells;

// ---- settings: those of the drop-in libraries, and small and odd ones in which growing, returning
// memory and running out happen all the time ----

struct Setting {
  const char* name;
  classic::HeapConfig config;
  std::size_t max_bytes = 256 << 10;  // of a request
  bool may_refuse = false;            // the heap must make do with the memory it has
  bool nolock_only = false;
};

constexpr std::size_t buffer_bytes = std::size_t{256} << 10;
constexpr std::size_t share_bytes = std::size_t{128} << 10;

constexpr classic::HeapConfig config_of(classic::SourceKind kind, std::size_t growth_bytes,
                                        std::size_t trim_threshold_bytes) {
  return {.source = {.kind = kind, .growth_bytes = growth_bytes},
          .trim_threshold_bytes = trim_threshold_bytes};
}

constexpr std::array settings{
    // Like the drop-in libraries.
    Setting{.name = "sbrk", .config = classic::by_sbrk},
    Setting{.name = "mmap", .config = classic::by_mmap},
    // Only small blocks: the threads are inside the heap most of the time, and their blocks are
    // adjacent.
    Setting{.name = "small", .config = classic::by_mmap, .max_bytes = 96},
    // As in the reports: grows by what is missing, never shrinks.
    Setting{.name = "exact",
            .config = config_of(classic::SourceKind::sbrk, 0, classic::never_trim)},
    // Grows by an odd number of bytes, returns memory at once.
    Setting{.name = "eager", .config = config_of(classic::SourceKind::sbrk, 4099, 4097)},
    // Many small chunks that come and go.
    Setting{.name = "chunks", .config = config_of(classic::SourceKind::mmap, 0, 1)},
    // A buffer at an odd address, which runs out.
    Setting{.name = "buffer",
            .config = config_of(classic::SourceKind::buffer, 0, 1),
            .max_bytes = buffer_bytes / 16,
            .may_refuse = true},
    // Lecture D's "solution 1".
    Setting{.name = "share",
            .config = {.source = {.kind = classic::SourceKind::mmap},
                       .thread_share_bytes = share_bytes},
            .max_bytes = share_bytes / 16,
            .may_refuse = true,
            .nolock_only = true},
};

// ---- one run ----

struct Plan {
  std::uint64_t seed;
  std::size_t seats;       // concurrent threads
  std::size_t rounds;      // with a pause of all threads for a check in between
  std::size_t operations;  // per seat and round
  std::size_t places;      // the most blocks that a seat holds
};

// A block and all that its holder knows about it; all zero if there is none.
struct Held {
  std::byte* address;
  std::size_t bytes;
  std::size_t alignment;
  std::uint64_t key;  // to its contents: usually the thread that allocated it
};

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

// One run. Whenever all threads pause, it checks everything that can be known about the heap. The
// first error ends the process.
class Run {
 public:
  struct Totals {
    std::size_t allocations;
    std::size_t foreign_frees;
    std::size_t refusals;  // requests for which a bounded heap had no memory
    std::size_t threads;   // that ran and ended
  };

  // Failures are reported under `name`.
  Run(const char* name, AnyHeap& heap, const Setting& setting, const Plan& plan)
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

  Totals run() {
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

 private:
  // The place of one thread, or of several in succession; only that thread uses it.
  struct alignas(128) Seat {
    std::size_t number;
    Random random{0};
    Held* places;
    Totals totals;
  };

  // A round at one seat. Even seats have one thread for the whole run; on the others short-lived
  // threads follow one another, each taking over the blocks that its predecessor left behind.
  void sit(Seat& seat) {
    if (seat.number % 2 == 0) return work(seat, plan_.operations);
    for (std::size_t leg = 0; leg < relay_legs; ++leg) {
      std::thread{[&] { work(seat, plan_.operations / relay_legs); }}.join();
      ++seat.totals.threads;
    }
  }

  void work(Seat& seat, std::size_t operations) {
    for (std::size_t i = 0; i < operations; ++i) step(seat);
  }

  void step(Seat& seat) {
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
  void serve_post(Seat& seat, Held& place) {
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

  void allocate(Seat& seat, Held& place) {
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

  void resize(Seat& seat, Held& place) {
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
  void move(Seat& seat, Held& place, std::size_t bytes) {
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

  void release(Held& place) {
    require_intact(place, place.bytes);
    heap_.release(place.address);
    place = Held{};
  }

  // Mostly small, sometimes large.
  std::size_t random_bytes(Random& random) const {
    const std::size_t kind = random.below(100);
    std::size_t most = 128;
    if (kind >= 60) most = 1 << 10;
    if (kind >= 85) most = 16 << 10;
    if (kind >= 99) most = 256 << 10;
    return random.between(0, std::min(most, setting_.max_bytes));
  }

  void write(const Held& held) {
    Content{held.address, held.bytes, held.key}.write(held.address, held.bytes);
  }

  // The first `bytes` of the block are what its holder wrote.
  void require_intact(const Held& held, std::size_t bytes) {
    const std::size_t damage =
        Content{held.address, held.bytes, held.key}.first_damage(held.address, bytes);
    if (damage != test::intact)
      require(false, "the contents of a live block changed", held.address + damage);
  }

  // ---- checks; no thread may be running ----

  void require_consistent() {
    require(heap_.is_valid(), "the heap is not valid");
    require_blocks_match_walk();

    const Walked walked{heap_};
    HeapMeasures counted{};
    for (const BlockView& block : walked) {
      if (block.state == BlockState::used) continue;
      ++counted.free_blocks;
      counted.free_bytes += block.bytes + classic::tag_bytes;
      if (block.state == BlockState::cached)
        counted.cached_bytes += block.bytes + classic::tag_bytes;
    }
    const HeapMeasures told = heap_.measures();
    require(told.free_blocks == counted.free_blocks, "measures tell another number of free blocks");
    require(told.free_bytes == counted.free_bytes, "measures tell another size of the free blocks");
    require(told.cached_bytes == counted.cached_bytes, "measures tell another size of the caches");
    require(told.segment_bytes == walked.total_bytes() + told.chunks * heap_.chunk_overhead_bytes(),
            "the segment is not the sum of its blocks");
  }

  // The used blocks are exactly those that threads hold: none is lost, none is held twice.
  void require_blocks_match_walk() {
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

  void release_everything() {
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

  void require(bool holds, const char* what, const void* where = nullptr) {
    if (holds) [[likely]]
      return;
    std::fprintf(stderr, "FAILED: %s: round %zu: %s (%p)\n", name_, round_, what, where);
    std::abort();
  }

  const char* name_;
  AnyHeap& heap_;
  const Setting& setting_;
  const Plan plan_;
  std::size_t round_ = 0;
  MappedArray<Seat> seats_;
  MappedArray<Held> places_;  // plan_.places for each seat
  PostOffice<Held> office_;
};

// ---- all runs ----

const Cell* find_cell(const char* strategy, const char* fit) {
  for (const Cell& cell : cells) {
    if (cell.strategy == strategy && cell.fit == fit) return &cell;
  }
  return nullptr;
}

const Setting* find_setting(const char* name) {
  for (const Setting& setting : settings) {
    if (std::strcmp(setting.name, name) == 0) return &setting;
  }
  return nullptr;
}

// The setting's configuration, with a buffer at an odd address where it lives in one.
classic::HeapConfig with_buffer(classic::HeapConfig config, MappedArray<std::byte>& buffer) {
  if (config.source.kind == classic::SourceKind::buffer) {
    config.source.buffer = &buffer[1];
    config.source.buffer_bytes = buffer.size() - 1;
  }
  return config;
}

// Adjacent free blocks must be merged, for example in a chunk that could not be returned. Where
// blocks change owner, some stay apart for good.
void require_merged(const char* name, AnyHeap& heap) {
  const Walked walked{heap};
  const auto blocks = static_cast<std::size_t>(walked.end() - walked.begin());
  if (blocks == heap.measures().chunks) return;
  std::fprintf(stderr, "FAILED: %s: %zu free blocks are left in %zu chunks\n", name, blocks,
               heap.measures().chunks);
  std::abort();
}

void run_once(const Cell& cell, const Setting& setting, const Plan& plan) {
  char name[128];
  std::snprintf(name, sizeof name, "%s %s --seed %llu", cell.name(' ').c_str(), setting.name,
                static_cast<unsigned long long>(plan.seed));
  std::printf("%s: ", name);
  std::fflush(stdout);
  MappedArray<std::byte> buffer{buffer_bytes};
  const std::unique_ptr<AnyHeap> heap = cell.make(with_buffer(setting.config, buffer));
  const Run::Totals totals = Run{name, *heap, setting, plan}.run();
  if (cell.strategy != "nolock") require_merged(name, *heap);
  const HeapMeasures measures = heap->measures();
  std::printf(
      "%zu allocations, %zu freed by others, %zu refused, %zu threads, grown %zu times: sound\n",
      totals.allocations, totals.foreign_frees, totals.refusals, totals.threads,
      measures.grow_calls);
}

}  // namespace
}  // namespace ts::stress

int main(int argc, char** argv) {
  using namespace ts::stress;
  using Clock = std::chrono::steady_clock;
  ts::test::Arguments arguments{argc, argv,
                                "Random work of many threads on one heap, everything checked."};
  Plan plan{
      .seed = arguments.number("seed", 1, "of what the threads do"),
      .seats = arguments.number("seats", 4, "threads at a time"),
      .rounds = arguments.number("rounds", 12, "rounds, with a check of everything after each"),
      .operations = arguments.number("operations", 1'000, "per seat and round"),
      .places = arguments.number("places", 128, "blocks that a seat holds at most")};
  const std::chrono::seconds time{
      arguments.number("seconds", 0, "go on with the next seeds for so long")};
  const char* const strategy = arguments.word("STRATEGY FIT SETTING");
  const char* const fit = arguments.word("STRATEGY FIT SETTING");
  const char* const setting_name = arguments.word("STRATEGY FIT SETTING");
  arguments.finish();
  if (strategy == nullptr || fit == nullptr || setting_name == nullptr)
    arguments.fail("give strategy, fit and setting; missing", "one");
  const Cell* const cell = find_cell(strategy, fit);
  if (cell == nullptr)
    arguments.fail("no such heap (lock rwlock nolock arenas cached lockfree; first best worst)",
                   strategy);
  const Setting* const setting = find_setting(setting_name);
  if (setting == nullptr)
    arguments.fail("no such setting (sbrk mmap small exact eager chunks buffer share)",
                   setting_name);
  if (setting->nolock_only && std::strcmp(strategy, "nolock") != 0)
    arguments.fail("only nolock has a fixed share, not", strategy);

  ts::test::settle_libc_break();
  const Clock::time_point end = Clock::now() + time;
  do {
    run_once(*cell, *setting, plan);
    ++plan.seed;
  } while (Clock::now() < end);
  return 0;
}
