// The blocks of one size class in one arena: slabs in a region of their own, and what is known of
// them, in a table elsewhere. Nothing is ever written to free memory: which slots are in use, and
// which wait in the quarantine, is in the table, a bit for each.
//
//   allocate -> slab_with_room -> random_slot -> canary (and the caller looks for writes)
//   release  -> look_at (in use? canary?) -> zero -> quarantine -> settle -> given back, if empty
//
// One lock each, so threads wait for each other only in the same class of the same arena. A free
// takes the lock of the heap that the address belongs to, whoever frees. Zero-filled memory is a
// valid heap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/heap_like.h"
#include "os/mutex.h"
#include "secure/findings.h"
#include "secure/quarantine.h"
#include "secure/space.h"

namespace ts::secure {

enum class SlabState : std::uint8_t {
  given_back,  // not accessible: no memory yet, or none any more
  partial,     // has slots to hand out, and others
  full,        // has none to hand out
  empty,       // has nothing else
};

struct Slab {
  static constexpr unsigned words = max_slab_slots / 64;

  // A slot is in use, or waits, or can be handed out.
  std::uint64_t used[words];
  std::uint64_t waiting[words];
  std::uint64_t canary;  // chosen anew whenever the slab gets memory
  std::uint32_t next;    // in the list of its state: numbers, plus one; 0: none
  std::uint32_t before;
  std::uint16_t used_slots;
  std::uint16_t waiting_slots;
  SlabState state;
};

// Of slabs, by number plus one.
struct SlabList {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

// The beginning of each table, before the slabs.
struct ClassStore {
  Random random;
  Quarantine<max_waiting> quarantine;
};

class alignas(cache_line_bytes) ClassHeap {
 public:
  enum class Refusal : std::uint8_t { none, no_memory, region_is_full };
  struct Allocation {
    std::byte* block;
    Refusal refusal;
    bool is_written;  // somebody wrote to where the canary is now
  };
  struct Totals {
    std::size_t mapped_bytes = 0;
    std::size_t used_bytes = 0;
    std::size_t waiting_bytes = 0;
    std::size_t free_slots = 0;  // waiting ones as well
    std::size_t maps = 0;        // times that a slab got memory
  };
  struct Damage {
    Finding finding;
    const std::byte* block;
  };

  // A block whose contents are zero, but for what was written there after its last free: for the
  // caller to look for, without the lock. `number` is the heap's own.
  Allocation allocate(unsigned number) noexcept;

  // Takes a block back; anything but `sound` means that nothing was changed. A damaged canary is
  // no hindrance if the caller says so.
  Finding release(const void* p, bool ignores_canary) noexcept;
  // Whether a block in use begins there.
  Finding look_at(const void* p) noexcept;

  // Gives back slabs in which nothing is in use or waits; true if there was one.
  bool give_back_empty_slabs() noexcept;
  // Looks at every canary, and at all memory that nobody may have written to.
  Damage find_damage() noexcept;
  bool walk(unsigned arena, BlockVisitor visit, void* argument) noexcept;
  Totals totals() noexcept;
  bool is_valid() noexcept;

  void fork_prepare() noexcept { lock_.lock_for_fork(); }
  void fork_parent() noexcept { lock_.unlock_after_fork(); }
  void fork_child() noexcept TS_NO_ANALYSIS { lock_.reset_after_fork(); }

 private:
  // Where a pointer is; `slab` is null if no slot begins there.
  struct Place {
    Slab* slab;
    std::uint32_t number;
    unsigned slot;
  };

  bool is_open() const noexcept TS_REQUIRES(lock_) { return region_ != 0; }
  bool open(unsigned number) noexcept TS_REQUIRES(lock_);
  const SizeClass& size_class() const noexcept TS_REQUIRES(lock_) {
    return size_classes[class_number_];
  }
  bool has_memory() const noexcept TS_REQUIRES(lock_) { return class_number_ != 0; }

  std::byte* slot_at(std::uint32_t slab, unsigned slot) const noexcept TS_REQUIRES(lock_);
  Place place_of(const void* p) noexcept TS_REQUIRES(lock_);
  Finding look_at(const Place& place) noexcept TS_REQUIRES(lock_);
  bool is_canary_intact(const Place& place) noexcept TS_REQUIRES(lock_);
  Damage find_damage(std::uint32_t number) noexcept TS_REQUIRES(lock_);

  Refusal slab_with_room(std::uint32_t& number) noexcept TS_REQUIRES(lock_);
  Refusal add_slab(std::uint32_t& number) noexcept TS_REQUIRES(lock_);
  bool extend_table(std::uint32_t slabs) noexcept TS_REQUIRES(lock_);
  bool map_slab(std::uint32_t number) noexcept TS_REQUIRES(lock_);
  unsigned random_slot(const Slab& slab) noexcept TS_REQUIRES(lock_);
  void settle(std::uint32_t number, unsigned slot) noexcept TS_REQUIRES(lock_);
  bool give_back(std::uint32_t number) noexcept TS_REQUIRES(lock_);

  SlabList* list_of(SlabState state) noexcept TS_REQUIRES(lock_);
  void enter(std::uint32_t number, SlabState state) noexcept TS_REQUIRES(lock_);
  void leave(std::uint32_t number) noexcept TS_REQUIRES(lock_);

  Mutex lock_;
  // Const once the heap is open:
  std::uint32_t class_number_ TS_GUARDED_BY(lock_) = 0;
  std::uintptr_t region_ TS_GUARDED_BY(lock_) = 0;  // where its first slab begins
  ClassStore* store_ TS_GUARDED_BY(lock_) = nullptr;
  Slab* slabs_ TS_GUARDED_BY(lock_) = nullptr;
  std::uint32_t capacity_ TS_GUARDED_BY(lock_) = 0;  // slabs for which region and table have room

  std::uint32_t slab_count_ TS_GUARDED_BY(lock_) = 0;    // those that ever had memory
  std::size_t table_mapped_ TS_GUARDED_BY(lock_) = 0;    // bytes of the table
  std::uint32_t mapped_slabs_ TS_GUARDED_BY(lock_) = 0;  // those that have memory
  std::uint32_t empty_slabs_ TS_GUARDED_BY(lock_) = 0;
  std::size_t maps_ TS_GUARDED_BY(lock_) = 0;
  SlabList partial_ TS_GUARDED_BY(lock_);
  SlabList empty_ TS_GUARDED_BY(lock_);
  SlabList given_back_ TS_GUARDED_BY(lock_);  // longest first
};

// Whether all of it is zero; `bytes` is a multiple of 8.
bool is_zero(const std::byte* begin, std::size_t bytes) noexcept;

}  // namespace ts::secure
