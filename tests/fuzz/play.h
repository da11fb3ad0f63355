// Interprets an input as the life of a program: which calls of the malloc family it makes, with
// which sizes, on which of its blocks, in which of its threads, when, and when the system refuses.
// After each call it checks everything that can be known against the shadow (shadow.h); sometimes,
// and at the end, the whole heap. It works with any heap of which there is one per process.
//
// A step is a byte, 5 bits of which choose the operation, and bytes for its arguments. If the other
// 3 are set, a byte chooses the thread for the following steps.
#pragma once

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "base/heap_like.h"
#include "fuzz/input.h"
#include "fuzz/refusals.h"
#include "fuzz/seats.h"
#include "fuzz/shadow.h"
#include "libc/extension.h"
#include "libc/libc_rules.h"

namespace ts::fuzz {

// The operations tried over all inputs: a run that never reached one proves nothing about it.
struct Totals {
  std::size_t allocations = 0;
  std::size_t moves = 0;          // by realloc
  std::size_t foreign_frees = 0;  // of blocks that another thread allocated
  std::size_t late_calls = 0;     // by threads that are ending
  std::size_t survived = 0;       // calls that succeeded although the system refused
  std::size_t failures = 0;       // calls that failed
  std::size_t whole_checks = 0;
};
inline Totals totals;

// Prints them, without a newline.
inline void print_totals() {
  std::printf(
      "%zu allocations, %zu moves, %zu foreign frees, %lu threads, %zu calls from ending ones, "
      "%zu survived refusals, %zu failures, %zu whole checks",
      totals.allocations, totals.moves, totals.foreign_frees, Seats::threads(), totals.late_calls,
      totals.survived, totals.failures, totals.whole_checks);
}
// Whether all rare cases occurred.
inline bool totals_are_complete() {
  return totals.moves != 0 && totals.foreign_frees != 0 && Seats::lingered() != 0 &&
         totals.survived != 0 && totals.failures != 0;
}

// The totals of a walk.
struct Walked {
  std::size_t used_blocks = 0;
  std::size_t used_bytes = 0;
};

// What must hold: at any time, and when all blocks are free and all threads gone. A heap with checks
// of its own derives them. (Each input starts with the heap as earlier inputs left it.)
struct Checks {
  // Whether walks leave out a block.
  static bool is_apart(const void*) { return false; }
  static void measures(const HeapMeasures& told, const Walked& walked) {
    require(told.free_bytes <= told.segment_bytes, "more is free than there is");
    require(told.cached_bytes <= told.free_bytes, "more is cached than is free");
    require(told.segment_bytes - told.free_bytes >= walked.used_bytes,
            "less is in use than is held");
  }
  static void end(const HeapMeasures& told, const Walked& walked) {
    require(walked.used_blocks == 0, "a block is in use that nobody holds");
    require(told.free_bytes == told.segment_bytes, "not all memory is free in the end");
  }
};

template <HeapLike Heap, class OwnChecks = Checks>
class Play {
 public:
  Play(LibcRules<Heap>& allocator, Input& input) : allocator_{allocator}, input_{input} {}

  void run() {
    constexpr std::uint64_t since_last_input = 100'000;
    clock_now += since_last_input;
    const unsigned ending = input_.byte();
    take_turns();
    seat_ = 0;
    armed_ = {};
    armed_calls_ = 0;
    check_everything();
    if (ending % 2 == 0) seats_.leave_all();
    while (!shadow_.is_empty()) release(ending % 4 < 2 ? 0 : shadow_.size() - 1);
    seats_.leave_all();
    seat_ = 0;
    call([&] { return allocator_.heap().trim(0); });
    const Walked walked = check_everything();
    OwnChecks::end(allocator_.heap().measures(), walked);
  }

 private:
  // The value of errno before a call; a successful call leaves it alone.
  static constexpr int errno_before = 4242;
  // Heaps that cannot tell which memory is zero write to all of it.
  static constexpr std::size_t most_zeroed_bytes = std::size_t{32} << 20;
  // Requests above this may fail.
  static constexpr std::size_t most_possible_bytes = std::size_t{1} << 32;

  // All steps, each in the thread whose turn it is. A turn lasts several steps, since changing
  // threads takes much longer than a step.
  void take_turns() {
    what_ = next_step();
    while (!input_.is_empty()) {
      auto turn = [this, seat = seat_] {
        do {
          step(what_);
          if (++steps_ % 256 == 0) check_everything();
          what_ = next_step();
        } while (!input_.is_empty() && seat_ == seat && leaving_ == 0);
      };
      seats_.run(seat_, turn);
      if (leaving_ != 0) seats_.leave(leaving_, may_linger_);
      leaving_ = 0;
    }
  }

  unsigned next_step() {
    const unsigned what = input_.byte();
    static constexpr unsigned seats[8] = {0, 0, 0, 1, 1, 1, 2, 3};
    if (what >> 5 == 7) seat_ = seats[input_.byte() % 8];
    return what & 31;
  }

  void step(unsigned what) {
    if (seats_.is_lingering(seat_)) ++totals.late_calls;
    switch (what) {
      case 0:
      case 1:
      case 2:
      case 3:
        return allocate(size());
      case 4:
      case 5:
        return allocate_many();
      case 6:
      case 7:
        return allocate_aligned();
      case 8:
        return allocate_zeroed();
      case 9:
      case 10:
        return with_block([&](std::size_t number) { resize(number, size()); });
      case 11:
      case 12:
        return with_block([&](std::size_t number) { reallocate(number, size()); });
      case 13:
        return with_block([&](std::size_t number) {
          const std::size_t bytes = shadow_.at(number).bytes;
          reallocate(number, bytes + bytes / 8 + input_.byte());
        });
      case 14:
        return with_block([&](std::size_t number) { grow_stepwise(number); });
      case 15:
        return with_block(
            [&](std::size_t number) { reallocate(number, shadow_.at(number).bytes / 2); });
      case 16:
      case 17:
      case 18:
      case 19:
      case 20:
        return with_block([&](std::size_t number) { release(number); });
      case 21:
      case 22:
      case 23:
        return release_many();
      case 24:
        return pass_time();
      case 25:
        return ask_sizes(size());
      case 26:
        call([&, keep = size()] { return allocator_.heap().trim(keep); });
        return;
      case 27:
        return check_something();
      case 28:
        return leave();
      case 29:
      case 30:
        return arm();
      default:
        return ask_for_the_impossible();
    }
  }

  // ---- arguments ----

  std::size_t size() {
    const unsigned kind = input_.byte();
    const unsigned detail = input_.byte();
    if (kind < 96) return (kind << 8 | detail) % 1500;
    if (kind < 216) {
      const unsigned exponent = 4 + kind % 18;  // to 4 MiB
      return (std::size_t{1} << exponent) + (std::size_t{detail} << exponent >> 8);
    }
    // Close to multiples of powers of two, such as OS pages and pages.
    if (kind < 250) return (std::size_t{1024} << kind % 5) * (1 + detail % 64) + kind % 3 - 1;
    return (std::size_t{detail} + 1) << 17;  // to 32 MiB
  }

  template <class Action>
  void with_block(const Action& action) {
    const std::size_t number = input_.below(65536);
    if (shadow_.is_empty()) return;
    action(number % shadow_.size());
  }

  // The next system calls are refused, all or after a few, for this many of our calls.
  void arm() {
    const unsigned how = input_.byte();
    armed_ = {.granted = how % 5, .left = 1U << how % 6};
    armed_calls_ = 1U << how % 7;
  }

  // Takes effect after this turn, since a thread cannot end itself within a job.
  void leave() {
    const unsigned how = input_.byte();
    leaving_ = 1 + how % (Seats::count - 1);
    may_linger_ = how < 128;
  }

  // ---- calls ----

  // The resulting errno is in errno_.
  template <class Job>
  auto call(const Job& job) {
    refusals = armed_;
    errno = errno_before;
    const auto result = job();
    errno_ = errno;
    armed_ = refusals;
    refusals.left = 0;
    was_refused_ = armed_.made != 0;
    armed_.made = 0;
    if (armed_calls_ == 0 || --armed_calls_ == 0) armed_ = {};
    return result;
  }

  void require_errno_kept() {
    require(errno_ == errno_before, "a call that did what it should changed errno");
    if (was_refused_) ++totals.survived;
  }
  // After a request that failed.
  void require_reason(std::size_t bytes) {
    require(was_refused_ || bytes > most_possible_bytes,
            "a request was refused although there is memory");
    require(errno_ == ENOMEM, "a request was refused, and errno is not ENOMEM");
    ++totals.failures;
  }

  Held describe(void* block, std::size_t bytes, std::size_t alignment) {
    require(address_of(block) % alignment == 0, "a block is not aligned", block);
    const std::size_t usable = allocator_.usable_size(block);
    require(usable >= bytes, "a block is shorter than it should be", block);
    return {.address = static_cast<std::byte*>(block),
            .bytes = bytes,
            .usable = usable,
            .alignment = alignment,
            .seat = seat_};
  }
  // All of it, as programs do that ask for the usable size, or only the requested size.
  void fill_and_add(Held& held) {
    ++seed_;
    held.fill(mix(seed_), seed_ % 4 == 0);
    shadow_.add(held);
  }

  template <class Job>
  void* request(std::size_t bytes, std::size_t alignment, const Job& job) {
    if (shadow_.is_full()) return nullptr;
    void* const block = call(job);
    if (block == nullptr) {
      require_reason(bytes);
      return nullptr;
    }
    require_errno_kept();
    ++totals.allocations;
    Held held = describe(block, bytes, alignment);
    fill_and_add(held);
    return block;
  }

  void allocate(std::size_t bytes) {
    request(bytes, min_alignment, [&] { return allocator_.malloc(bytes); });
  }

  void allocate_many() {
    const std::size_t count = std::size_t{input_.byte()} + 1;
    const std::size_t bytes = size();
    std::vector<void*> blocks(shadow_.room_for(count, bytes));
    if (blocks.empty()) return;
    call([&] {
      for (void*& block : blocks) block = allocator_.malloc(bytes);
      return true;
    });
    if (std::find(blocks.begin(), blocks.end(), nullptr) == blocks.end()) {
      require_errno_kept();
    } else {
      require_reason(bytes);
    }
    for (void* const block : blocks) {
      if (block == nullptr) continue;
      ++totals.allocations;
      Held held = describe(block, bytes, min_alignment);
      fill_and_add(held);
    }
  }

  void allocate_aligned() {
    const unsigned how = input_.byte();
    const std::size_t alignment = std::size_t{1} << how % 23;  // to 4 MiB
    const std::size_t least = alignment < min_alignment ? min_alignment : alignment;
    const std::size_t bytes = size();
    switch (how / 23 % 6) {
      case 0:
        return allocate_by_posix(alignment, bytes);
      case 1: {
        const std::size_t odd = input_.below(20'000);
        request(bytes, std::bit_ceil(odd), [&] { return allocator_.memalign(odd, bytes); });
        return;
      }
      case 2:
        request(bytes, os::page_bytes(), [&] { return allocator_.valloc(bytes); });
        return;
      case 3:
        request(align_up(bytes == 0 ? 1 : bytes, os::page_bytes()), os::page_bytes(),
                [&] { return allocator_.pvalloc(bytes); });
        return;
      default:
        request(bytes, least, [&] { return allocator_.memalign(alignment, bytes); });
    }
  }

  // Its error is its result.
  void allocate_by_posix(std::size_t alignment, std::size_t bytes) {
    void* const untouched = this;
    request(bytes, alignment, [&]() -> void* {
      void* block = untouched;
      const int error = allocator_.posix_memalign(&block, alignment, bytes);
      const bool is_legal = alignment >= sizeof(void*);
      require(is_legal ? error == 0 || error == ENOMEM : error == EINVAL,
              "posix_memalign returned another error");
      require((error != 0) == (block == untouched), "posix_memalign touched its result");
      if (error == 0) return block;
      // POSIX leaves it open, and heaps that report ENOMEM themselves set it here too.
      require(errno == errno_before || (is_legal && ImplementsLibcRules<Heap>),
              "posix_memalign changed errno");
      if (!is_legal) ++refusals.made;  // that is its reason
      errno = ENOMEM;
      return nullptr;
    });
  }

  void allocate_zeroed() {
    const std::size_t each = size();
    const std::size_t count = 1 + input_.byte() % 4;
    const std::size_t bytes = count * each;
    if (bytes > most_zeroed_bytes || shadow_.is_full()) return;
    void* const block = call([&] { return allocator_.calloc(count, each); });
    if (block == nullptr) return require_reason(bytes);
    require_errno_kept();
    ++totals.allocations;
    Held held = describe(block, bytes, min_alignment);
    Content::require_zero(held.address, allocator_.usable_size(block));
    fill_and_add(held);
  }

  void resize(std::size_t number, std::size_t bytes) {
    Held held = shadow_.remove(number);
    held.require_intact();
    const bool is_resized = call([&] { return allocator_.heap().resize(held.address, bytes); });
    const std::size_t usable = allocator_.usable_size(held.address);
    if (is_resized) {
      held.keep(bytes);
      held.require_intact();
      require(usable >= bytes, "a block was resized, and is too short", held.address);
      held.bytes = bytes;
      held.usable = usable;
      return fill_and_add(held);
    }
    require(usable == held.usable, "a block was not resized, and is of another size", held.address);
    held.require_intact();
    shadow_.add(held);
  }

  // A block grows only while the shadow has room, since a heap may copy all of it.
  void reallocate(std::size_t number, std::size_t bytes) {
    if (bytes > shadow_.at(number).bytes && shadow_.is_full()) return;
    Held held = shadow_.remove(number);
    held.require_intact();
    if (!reallocate(held, bytes)) return;
    fill_and_add(held);
  }

  // False if the block is now free. Otherwise it has its former bytes, as far as it still reaches.
  bool reallocate(Held& held, std::size_t bytes) {
    void* const moved = call([&] { return allocator_.realloc(held.address, bytes); });
    if (moved == nullptr && bytes == 0) {
      require_errno_kept();
      return false;
    }
    if (moved == nullptr) {
      require_reason(bytes);
      require(allocator_.usable_size(held.address) == held.usable,
              "realloc failed, and the block is of another size", held.address);
      return true;
    }
    require_errno_kept();
    if (moved != held.address) ++totals.moves;
    const Held now = describe(moved, bytes, min_alignment);
    held.address = now.address;
    held.bytes = bytes;
    held.usable = now.usable;
    held.alignment = now.alignment;
    held.keep(bytes);
    held.require_intact();
    return true;
  }

  // As programs append: a little at a time, many times.
  void grow_stepwise(std::size_t number) {
    const std::size_t steps = input_.byte();
    const std::size_t more = 1 + input_.below(512);
    Held held = shadow_.remove(number);
    held.require_intact();
    for (std::size_t i = 0; i < steps; ++i) reallocate(held, held.bytes + more);
    fill_and_add(held);
  }

  void release(std::size_t number) {
    const Held held = take_out(number);
    call([&] {
      release(held);
      return true;
    });
    require_errno_kept();
  }

  void release_many() {
    const std::size_t count = input_.below(1024);
    const std::size_t first = input_.below(65536);
    const std::size_t step = input_.byte();
    std::vector<Held> held;
    for (std::size_t i = 0; i < count && !shadow_.is_empty(); ++i)
      held.push_back(take_out((first + i * step) % shadow_.size()));
    call([&] {
      for (const Held& each : held) release(each);
      return true;
    });
    require_errno_kept();
  }

  // For a block about to be freed.
  Held take_out(std::size_t number) {
    const Held held = shadow_.remove(number);
    held.require_intact();
    require(allocator_.usable_size(held.address) == held.usable, "a block's size changed",
            held.address);
    if (held.seat != seat_) ++totals.foreign_frees;
    return held;
  }

  void release(const Held& held) {
    if (held.seed % 8 == 0) {
      allocator_.free_sized(held.address, held.bytes, held.alignment);
    } else {
      allocator_.free(held.address);
    }
  }

  // Up to a second, or several.
  void pass_time() {
    const std::uint64_t how = input_.byte();
    clock_now += how < 224 ? 4 * how : 1000 * (how - 223);
    if (input_.byte() % 2 != 0) return;
    const int due = call([&] { return housekeep(allocator_.heap()); });
    require(due >= -1 && due <= 200, "housekeeping is due at no time", nullptr);
  }

  void check_something() {
    const unsigned what = input_.byte();
    if (what < 64) {
      check_everything();
    } else if (what < 128) {
      release_null();
    } else {
      // A fork, from the parent's side.
      allocator_.heap().fork_prepare();
      allocator_.heap().fork_parent();
    }
  }

  void release_null() {
    call([&] {
      allocator_.free(nullptr);
      return true;
    });
    require_errno_kept();
    require(allocator_.usable_size(nullptr) == 0, "null has a size");
  }

  void ask_sizes(std::size_t bytes) {
    const std::size_t good = call([&] { return allocator_.good_size(bytes); });
    require(good >= bytes, "good_size is less than what was asked for");
    require(allocator_.good_size(good) == good, "good_size of good_size is another");
    if (shadow_.is_full()) return;
    void* const block = request(bytes, min_alignment, [&] { return allocator_.malloc(bytes); });
    if (block == nullptr) return;
    require(allocator_.usable_size(block) >= good, "a block is shorter than good_size says", block);
  }

  void ask_for_the_impossible() {
    const std::size_t less = input_.byte();
    const std::size_t bytes = (input_.byte() % 2 == 0 ? SIZE_MAX : std::size_t{PTRDIFF_MAX}) - less;
    const auto expect_null = [&](const auto& job) {
      require(call(job) == nullptr, "an impossible request was granted");
      require(errno_ == ENOMEM, "an impossible request was refused, and errno is not ENOMEM");
    };
    expect_null([&] { return allocator_.malloc(bytes); });
    expect_null([&] { return allocator_.calloc(bytes / 16, 17 + less); });
    expect_null([&] { return allocator_.memalign(std::size_t{64} << less % 40, bytes); });
    require(allocator_.good_size(SIZE_MAX - less) == 0, "there is a good_size of the impossible");
    if (shadow_.is_empty()) return;
    const Held& held = shadow_.at(less % shadow_.size());
    expect_null([&] { return allocator_.realloc(held.address, bytes); });
    held.require_intact();
  }

  // ---- checks of everything ----

  struct Visit {
    const Shadow& shadow;
    Walked walked;
  };

  static bool visit(const BlockView& block, void* argument) {
    auto& visit = *static_cast<Visit*>(argument);
    if (block.state != BlockState::used) return true;
    ++visit.walked.used_blocks;
    visit.walked.used_bytes += block.bytes;
    require(visit.shadow.holds(block.payload, block.bytes),
            "a block is in use that the program does not hold, or is shorter", block.payload);
    return true;
  }

  Walked check_everything() {
    ++totals.whole_checks;
    std::size_t apart = 0;
    for (const Held& held : shadow_.blocks()) {
      held.require_intact();
      require(allocator_.usable_size(held.address) == held.usable, "a block's size changed",
              held.address);
      apart += OwnChecks::is_apart(held.address) ? 1 : 0;
    }
    Heap& heap = allocator_.heap();
    require(heap.is_valid(), "the heap is not valid");
    Visit all{shadow_, {}};
    require(heap.walk(visit, &all), "a walk ended early");
    require(all.walked.used_blocks == shadow_.size() - apart,
            "a block that the program holds is not in use");
    OwnChecks::measures(heap.measures(), all.walked);
    return all.walked;
  }

  LibcRules<Heap>& allocator_;
  Input& input_;
  Shadow shadow_;
  Seats seats_;
  unsigned what_ = 0;  // the next step
  unsigned steps_ = 0;
  unsigned seat_ = 0;     // whose turn it is
  unsigned leaving_ = 0;  // the seat whose thread ends after this turn; 0: none
  bool may_linger_ = false;
  Refusals armed_;
  unsigned armed_calls_ = 0;
  bool was_refused_ = false;
  int errno_ = 0;
  std::uint64_t seed_ = 0;
};

// Before anything is refused, the heap chooses its place in the address space, and makes its key.
template <class Heap>
void make_ready(LibcRules<Heap>& allocator) {
  catch_system_calls();
  allocator.free(allocator.malloc(1));
  Seats::make_key();
}

}  // namespace ts::fuzz
