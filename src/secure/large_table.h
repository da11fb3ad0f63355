// The large blocks by their addresses: a hash table with linear probing (Knuth, The Art of Computer
// Programming 3, 6.4), in a mapping of its own between inaccessible pages. Its user locks it.
// Zero-filled memory is a valid table.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/fault.h"
#include "secure/large_block.h"

namespace ts::secure {

// Invariants:
//   home    a block stands at its home, or behind it with no empty place between: find() finds it
//   count   count_ places are full; with promised_ further ones, at most two thirds of capacity_
class LargeTable {
 public:
  // Promises a place to one more block, until it is inserted or the promise is broken; false if the
  // system refuses.
  bool promise_place() noexcept;
  void break_promise() noexcept { --promised_; }
  // To be called with a block that has a promise.
  LargeBlock& insert(const LargeBlock& block) noexcept;

  // Null if no block begins there. Blocks move in the table when others come or go.
  LargeBlock* find(std::uintptr_t begin) noexcept;
  // The block among whose reserved addresses it is. Time: the whole table.
  LargeBlock* find_around(std::uintptr_t address) noexcept;
  void erase(LargeBlock& block) noexcept;

  template <class Visit>
  void for_each(Visit visit) noexcept {
    for (std::size_t i = 0; i < capacity_; ++i) {
      if (slots_[i].begin != 0) visit(slots_[i]);
    }
  }
  // Erases the blocks that `is_done` says so of, in one pass, which may miss some; whether it did
  // one.
  template <class IsDone>
  bool erase_some(IsDone is_done) noexcept {
    bool erased = false;
    for (std::size_t i = 0; i < capacity_;) {
      if (slots_[i].begin != 0 && is_done(slots_[i])) {
        erase(slots_[i]);  // another one may be in its place
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
