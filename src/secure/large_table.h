// What is known of the large blocks, by their addresses: a hash table with linear probing (Knuth,
// The Art of Computer Programming 3, 6.4), in a mapping of its own between pages that nobody may
// touch. Not locked: its user does that. Zero-filled memory is a valid table.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::secure {

enum class LargeState : std::uint8_t {
  used,
  leaving,  // freed, or about to move: some thread is taking its pages away
  waiting,  // in the quarantine: address space without memory
  stuck,    // the same, but the system would not take it back
};

struct LargeBlock {
  std::uintptr_t begin;           // 0: no block
  std::size_t bytes;              // that the program may use
  std::size_t asked;              // that it asked for
  std::uintptr_t reserved_begin;  // the address space around it
  std::size_t reserved_bytes;
  std::uint64_t canary;
  LargeState state;
};

class LargeTable {
 public:
  // Makes sure that one more block can be inserted, beside those that this was said of before and
  // that have not been yet; false if the system refuses.
  bool promise_place() noexcept;
  void break_promise() noexcept { --promised_; }
  // Of a block that a place was promised for.
  LargeBlock& insert(const LargeBlock& block) noexcept;

  // Null if no block begins there. Blocks move in the table when others come or go.
  LargeBlock* find(std::uintptr_t begin) noexcept;
  // The one in whose address space it is; slow.
  LargeBlock* find_around(std::uintptr_t address) noexcept;
  void erase(LargeBlock& block) noexcept;

  template <class Visit>
  void for_each(Visit visit) noexcept {
    for (std::size_t i = 0; i < capacity_; ++i) {
      if (slots_[i].begin != 0) visit(slots_[i]);
    }
  }
  bool is_valid() noexcept;

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
