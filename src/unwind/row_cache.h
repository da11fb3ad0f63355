// Rows that were found before, by the address of the instruction: two tables of words in .bss,
// which cost no memory until the first stack. They change one word at a time, so that signal
// handlers, forks and threads find no incomplete change. The user must drop rows that are no longer
// valid.
#pragma once

#include "base/atomic.h"
#include "base/bits.h"
#include "unwind/frame_row.h"

namespace ts::os {

class RowCache {
 public:
  // The packed row of an address, which is not 0; 0 if none is known.
  std::uint64_t find(std::uintptr_t pc) const noexcept {
    // acquire: pairs with the store in add(); the row was stored before
    const std::uint64_t word = addresses_[index_of(pc)].load(std::memory_order_acquire);
    if (word >> number_bits != pc) return 0;
    // relaxed: it changes only once, from 0 to the row
    return rows_[word % rows_count].load(std::memory_order_relaxed);
  }
  void add(std::uintptr_t pc, const FrameRow& row) noexcept;
  // Drops all addresses' rows. A thread that adds one meanwhile has that code on its stack, so its
  // row stays valid.
  void clear() noexcept;

 private:
  static constexpr unsigned rows_bits = 12;
  static constexpr std::size_t rows_count = std::size_t{1} << rows_bits;
  static constexpr unsigned addresses_bits = 13;
  static constexpr unsigned number_bits = 16;
  static_assert(rows_bits <= number_bits);

  static std::size_t index_of(std::uintptr_t pc) noexcept {
    return mix(pc) >> (64 - addresses_bits);
  }
  bool number_of(std::uint64_t packed, std::uint64_t& number) noexcept;

  // There are few different rows: programs of a million functions have some thousand. A word is 0
  // until it gets a row, and keeps it.
  Atomic<std::uint64_t> rows_[rows_count];
  // The upper 48 bits hold the address (user addresses of these processors have no more bits), the
  // lower ones the number of its row. 0 is free.
  Atomic<std::uint64_t> addresses_[std::size_t{1} << addresses_bits];
};

extern RowCache row_cache;

}  // namespace ts::os
