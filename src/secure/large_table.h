// Finds large blocks by address: a hash table with linear probing (Knuth, The Art of Computer
// Programming 3, 6.4), in a mapping of its own between inaccessible pages. The caller holds the
// lock. Zero-filled memory is a valid table.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/fault.h"
#include "secure/large_block.h"

namespace ts::secure {

// Invariants:
//   home    each block is at its home slot, or after it with no empty slot between: find() finds it
//   count   count_ slots are full; together with promised_ ones, at most two thirds of capacity_
class LargeTable {
 public:
  // Reserves a slot for one more block, until it is inserted or the promise is broken; false if the
  // kernel refuses memory.
  bool promise_place() noexcept;
  void break_promise() noexcept { --promised_; }
  // The block must have a promised slot.
  LargeBlock& insert(const LargeBlock& block) noexcept;

  // Null if no block begins there. Inserting or erasing other blocks may move it within the table.
  LargeBlock* find(std::uintptr_t begin) noexcept;
  // The block whose reserved range contains the address. Scans the whole table.
  LargeBlock* find_around(std::uintptr_t address) noexcept;
  void erase(LargeBlock& block) noexcept;

  template <class Visit>
  void for_each(Visit visit) noexcept {
    for (std::size_t i = 0; i < capacity_; ++i) {
      if (slots_[i].begin != 0) visit(slots_[i]);
    }
  }
  // Erases the blocks for which `is_done` returns true, in one pass that may miss some; returns
  // whether it erased any.
  template <class IsDone>
  bool erase_some(IsDone is_done) noexcept {
    bool erased = false;
    for (std::size_t i = 0; i < capacity_;) {
      if (slots_[i].begin != 0 && is_done(slots_[i])) {
        erase(slots_[i]);  // another block may have moved into its slot
        erased = true;
      } else {
        ++i;
      }
    }
    return erased;
  }
  std::size_t promised() const noexcept { return promised_; }
  Fault find_fault() noexcept;

 private:
  std::size_t home_of(std::uintptr_t begin) const noexcept;
  LargeBlock& free_slot(std::uintptr_t begin) noexcept;
  bool grow() noexcept;

  LargeBlock* slots_;
  std::size_t capacity_;  // a power of two, or 0
  std::size_t count_;
  std::size_t promised_;
};

}  // namespace ts::secure
