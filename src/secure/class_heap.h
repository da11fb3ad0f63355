// The blocks of one size class in one arena. Slabs live in a region of their own, their descriptors
// in a table elsewhere. Free memory holds no heap metadata: the table has one bit for each slot in
// use and one for each slot in the quarantine.
//
//   allocate -> slab_with_room -> random_slot -> tail (the caller checks for stray writes)
//   release  -> look_at (in use? tails?) -> leaving -> zero -> quarantine -> settle
//               -> an empty slab: leaving -> give_back, without the lock -> given back
//
// Each class heap has its own lock, so threads contend only within the same class and arena. A free
// takes the lock of the heap that owns the address, whichever thread calls it. Pages are returned
// without the lock, because other libraries may intercept those calls (os.h). Zero-filled memory is
// a valid heap.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/fault.h"
#include "base/heap_like.h"
#include "os/mutex.h"
#include "secure/findings.h"
#include "secure/slab.h"
#include "secure/space.h"

namespace ts::secure {

// Invariants of an open heap whenever it is unlocked:
//   table    slab_count_ <= capacity_; the table has memory for that many descriptors, and the
//            region has room for capacity_ slabs
//   counts   mapped_slabs_ slabs have memory (all but those in state given_back); empty_slabs_ are
//            empty
//   lists    each slab in state partial, empty or given_back is in the list of its state, once
//   leaving  such a slab belongs to the thread that is giving it back; if a fork cut that thread
//            off, it stays in this state
//   waiting  the quarantine holds each waiting slot that is not leaving once, and nothing else
// A heap that is not open has no slabs.
class alignas(cache_line_bytes) ClassHeap {
 public:
  enum class Refusal : std::uint8_t { none, no_memory, region_is_full };
  struct Allocation {
    std::byte* block;
    Refusal refusal;
    bool is_written;  // the bytes now holding the tail's mark or word were not zero
  };
  struct Totals {
    std::size_t mapped_bytes = 0;
    std::size_t used_bytes = 0;
    std::size_t waiting_bytes = 0;
    std::size_t free_slots = 0;  // including waiting slots
    std::size_t maps = 0;        // how often a slab was given memory
  };
  struct Damage {
    Finding finding;
    const std::byte* block;
  };

  // What the heap knows about an address. `bytes` is the requested size, or the block's capacity if
  // its tail is damaged.
  struct Seen {
    Finding finding;
    std::size_t bytes;
  };

  // Returns a block of `bytes`, at most the size of the class. Its contents are zero unless it was
  // written to after its last free: the caller checks for that without the lock, everywhere but in
  // the tail's words (tail.h). `number` is this heap's own.
  Allocation allocate(unsigned number, std::size_t bytes) noexcept;
  // Resizes a block within its class; false if the block is damaged or not in use.
  bool resize(const void* p, std::size_t bytes) noexcept;

  // Frees a block. With any finding other than `sound` nothing was changed, except that damage is
  // ignored if `ignores_damage`.
  Finding release(const void* p, bool ignores_damage) noexcept;
  // Checks whether a block in use begins at `p`.
  Seen look_at(const void* p) noexcept;

  // Returns the memory of all empty slabs; true if there were any.
  bool give_back_empty_slabs() noexcept;
  // Checks every canary, and all memory that must be zero.
  Damage find_damage() noexcept;
  // For process exit: returns nothing if the lock is held.
  Left find_left() noexcept;
  bool walk(unsigned arena, BlockVisitor visit, void* argument) noexcept;
  Totals totals() noexcept;
  // Checks the invariants above and those of slabs, except the contents of memory.
  Fault find_fault() noexcept;

  void fork_prepare() noexcept { lock_.lock_for_fork(); }
  void fork_parent() noexcept { lock_.unlock_after_fork(); }
  void fork_child() noexcept TS_NO_ANALYSIS { lock_.reset_after_fork(); }

 private:
  // The slot at which a pointer points; `slab` is null if none can begin there. The slab may have
  // no descriptor yet: look_at() checks that, with the lock.
  struct Place {
    Slab* slab;
    std::uint32_t number;
    unsigned slot;
    std::byte* block;  // address of the slot
  };

  bool is_open() const noexcept TS_REQUIRES(lock_) {
    return region_.load(std::memory_order_relaxed) != 0;
  }
  bool open(unsigned number) noexcept TS_REQUIRES(lock_);
  const SizeClass& size_class() const noexcept TS_REQUIRES(lock_) {
    return size_class_of(class_number_);
  }
  bool has_memory() const noexcept TS_REQUIRES(lock_) { return class_number_ != 0; }

  std::byte* slot_at(std::uint32_t slab, unsigned slot) const noexcept TS_REQUIRES(lock_);
  Place place_of(const void* p) const noexcept;
  Seen look_at(const Place& place) noexcept TS_REQUIRES(lock_);
  std::size_t asked_at(const Place& place) noexcept TS_REQUIRES(lock_);
  bool is_intact_before(const Place& place) noexcept TS_REQUIRES(lock_);
  Damage find_damage(std::uint32_t number) noexcept TS_REQUIRES(lock_);

  Refusal slab_with_room(std::uint32_t& number) noexcept TS_REQUIRES(lock_);
  Refusal add_slab(std::uint32_t& number) noexcept TS_REQUIRES(lock_);
  bool extend_table(std::uint32_t slabs) noexcept TS_REQUIRES(lock_);
  bool map_slab(std::uint32_t number) noexcept TS_REQUIRES(lock_);
  bool map_pages(std::uint32_t number) noexcept TS_REQUIRES(lock_);
  bool has_pages(std::uint32_t number) const noexcept TS_REQUIRES(lock_);
  bool has_guard_before(std::uint32_t number) const noexcept TS_REQUIRES(lock_);
  bool is_joined(std::uint32_t number) const noexcept TS_REQUIRES(lock_);
  int joined_neighbours(std::uint32_t number) const noexcept TS_REQUIRES(lock_);
  unsigned random_slot(const Slab& slab) noexcept TS_REQUIRES(lock_);
  // Both return a slab that is now leaving, as its number plus one, or 0. The caller gives it back
  // once it has released the lock.
  std::uint32_t put_away(std::uint32_t number, unsigned slot) noexcept TS_REQUIRES(lock_);
  std::uint32_t settle(std::uint32_t number, unsigned slot) noexcept TS_REQUIRES(lock_);
  bool must_stay(std::uint32_t number) const noexcept TS_REQUIRES(lock_);
  bool take_out(std::uint32_t number) noexcept TS_REQUIRES(lock_);
  // Both are called without the lock.
  bool give_back(std::uint32_t number) noexcept;
  void give_back_beside(std::uint32_t number) noexcept;

  Fault find_list_fault(const SlabList& list, SlabState state, std::uint32_t length) noexcept
      TS_REQUIRES(lock_);
  Fault find_waiting_fault() noexcept TS_REQUIRES(lock_);
  Fault find_fault_locked() noexcept TS_REQUIRES(lock_);
  void check_slow_path() noexcept TS_REQUIRES(lock_);

  SlabList* list_of(SlabState state) noexcept TS_REQUIRES(lock_);
  void enter(std::uint32_t number, SlabState state) noexcept TS_REQUIRES(lock_);
  void leave(std::uint32_t number) noexcept TS_REQUIRES(lock_);
  void count_empty(int change) noexcept TS_REQUIRES(lock_);

  // The first cache line holds all that malloc and free need.
  Mutex lock_;
  // Constant once the heap is open:
  std::uint32_t class_number_ TS_GUARDED_BY(lock_) = 0;
  std::uint32_t slab_count_ TS_GUARDED_BY(lock_) = 0;  // slabs that ever had memory
  // Address of the first slab; 0: not open. Set last, by release, paired with place_of().
  std::atomic<std::uintptr_t> region_{0};
  ClassStore* store_ TS_GUARDED_BY(lock_) = nullptr;
  Slab* slabs_ TS_GUARDED_BY(lock_) = nullptr;
  SlabList partial_ TS_GUARDED_BY(lock_);
  SlabList empty_ TS_GUARDED_BY(lock_);
  SlabList given_back_ TS_GUARDED_BY(lock_);  // longest first

  std::uint32_t capacity_ TS_GUARDED_BY(lock_) = 0;  // slabs that fit both the region and the table
  std::uint32_t mapped_slabs_ TS_GUARDED_BY(lock_) = 0;  // slabs that have memory now
  std::uint32_t empty_slabs_ TS_GUARDED_BY(lock_) = 0;
  std::size_t table_mapped_ TS_GUARDED_BY(lock_) = 0;  // bytes of the table
  std::size_t maps_ TS_GUARDED_BY(lock_) = 0;
};

}  // namespace ts::secure
