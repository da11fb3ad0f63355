// Adds and drops rows.
#include "unwind/row_cache.h"

namespace ts::os {

constinit RowCache row_cache;

// The number of a row, which is then in the table; false if that is full nearby.
bool RowCache::number_of(std::uint64_t packed, std::uint64_t& number) noexcept {
  constexpr unsigned most_tried = 32;
  const std::uint64_t first = mix(packed) >> (64 - rows_bits);
  for (unsigned i = 0; i < most_tried; ++i) {
    number = (first + i) % rows_count;
    // relaxed: the word is the whole row
    std::uint64_t present = rows_[number].load(std::memory_order_relaxed);
    if (present == 0 &&
        rows_[number].compare_exchange_strong(present, packed, std::memory_order_relaxed))
      return true;
    if (present == packed) return true;
  }
  return false;
}

void RowCache::add(std::uintptr_t pc, const FrameRow& row) noexcept {
  const std::uint64_t packed = pack(row);
  std::uint64_t number = 0;
  if (packed == 0 || pc >> (64 - number_bits) != 0 || !number_of(packed, number)) return;
  // release: pairs with the load in find()
  addresses_[index_of(pc)].store(pc << number_bits | number, std::memory_order_release);
}

void RowCache::clear() noexcept {
  for (Atomic<std::uint64_t>& word : addresses_) {
    // relaxed: the caller's release store of the new module's state comes after this, and threads
    // that meet the module's code load that state first; for a module without a state, each such
    // thread calls this itself (modules.cpp)
    if (word.load(std::memory_order_relaxed) != 0) word.store(0, std::memory_order_relaxed);
  }
}

}  // namespace ts::os
