// One stress run: threads that allocate, align, resize, free their own blocks and others', come and
// go and leave blocks behind. Whenever all of them pause, it checks everything that can be known
// about the heap. The first error ends the process.
#pragma once

#include <cstdint>

#include "any_heap.h"
#include "programs/support/random.h"
#include "stress/post_office.h"
#include "stress/settings.h"

namespace ts::stress {

using testing::AnyHeap;

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

class Run {
 public:
  // Failures are reported under `name`.
  Run(const char* name, AnyHeap& heap, const Setting& setting, const Plan& plan);

  struct Totals {
    std::size_t allocations;
    std::size_t foreign_frees;
    std::size_t refusals;  // requests for which a bounded heap had no memory
    std::size_t threads;   // that ran and ended
  };
  Totals run();

 private:
  // The place of one thread, or of several in succession; only that thread uses it.
  struct alignas(128) Seat {
    std::size_t number;
    test::Random random{0};
    Held* places;
    Totals totals;
  };

  // Threads.
  void sit(Seat& seat);
  void work(Seat& seat, std::size_t operations);
  void step(Seat& seat);
  void allocate(Seat& seat, Held& place);
  void resize(Seat& seat, Held& place);
  void serve_post(Seat& seat, Held& place);
  void move(Seat& seat, Held& place, std::size_t bytes);
  void release(Held& place);
  std::size_t random_bytes(test::Random& random) const;

  // Checks; no thread may be running.
  void require_consistent();
  void require_blocks_match_walk();
  void release_everything();

  static void write(const Held& held);
  void require_intact(const Held& held, std::size_t bytes);
  void require(bool holds, const char* what, const void* where = nullptr);

  const char* name_;
  AnyHeap& heap_;
  const Setting& setting_;
  const Plan plan_;
  std::size_t round_ = 0;
  test::MappedArray<Seat> seats_;
  test::MappedArray<Held> places_;  // plan_.places for each seat
  PostOffice<Held> office_;
};

}  // namespace ts::stress
