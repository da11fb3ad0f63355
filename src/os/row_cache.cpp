// Both tables change by single words, so that signal handlers, forks and threads find nothing half
// done.
#include "os/row_cache.h"

#include "base/atomic.h"
#include "base/bits.h"

namespace ts::os::row_cache {
namespace {

// Different rows are few: programs of a million functions have some thousand. A word is 0 until it
// gets a row, and keeps it.
constexpr unsigned rows_bits = 12;
constexpr std::size_t rows_count = std::size_t{1} << rows_bits;
constinit Atomic<std::uint64_t> rows[rows_count];

// The upper 48 bits have the address, which no user of these processors has more of, the lower
// the number of its row. 0 is free.
constexpr unsigned addresses_bits = 13;
constexpr unsigned number_bits = 16;
constinit Atomic<std::uint64_t> addresses[std::size_t{1} << addresses_bits];
static_assert(rows_bits <= number_bits);

Atomic<std::uint64_t>& place_of(std::uintptr_t pc) noexcept {
  return addresses[mix(pc) >> (64 - addresses_bits)];
}

// The number of a row, which is in the table then; false if that is full nearby.
bool number_of(std::uint64_t packed, std::uint64_t& number) noexcept {
  constexpr unsigned most_tried = 32;
  const std::uint64_t first = mix(packed) >> (64 - rows_bits);
  for (unsigned i = 0; i < most_tried; ++i) {
    number = (first + i) % rows_count;
    // relaxed: the word is all that there is of a row
    std::uint64_t present = rows[number].load(std::memory_order_relaxed);
    if (present == 0 &&
        rows[number].compare_exchange_strong(present, packed, std::memory_order_relaxed))
      return true;
    if (present == packed) return true;
  }
  return false;
}

}  // namespace

bool find(std::uintptr_t pc, FrameRow& row) noexcept {
  // acquire, of the store in add(): the row was in its place before
  const std::uint64_t word = place_of(pc).load(std::memory_order_acquire);
  if (word >> number_bits != pc) return false;
  // relaxed: it changes from 0 to the row, once
  row = unpack(rows[word % rows_count].load(std::memory_order_relaxed));
  return true;
}

void add(std::uintptr_t pc, const FrameRow& row) noexcept {
  const std::uint64_t packed = pack(row);
  std::uint64_t number = 0;
  if (packed == 0 || pc >> (64 - number_bits) != 0 || !number_of(packed, number)) return;
  // release, to the load in find()
  place_of(pc).store(pc << number_bits | number, std::memory_order_release);
}

void clear() noexcept {
  for (Atomic<std::uint64_t>& word : addresses) {
    // relaxed: the caller's release store of the new module's state comes after it, and threads
    // that meet the module's code load that first (modules.cpp)
    if (word.load(std::memory_order_relaxed) != 0) word.store(0, std::memory_order_relaxed);
  }
}

}  // namespace ts::os::row_cache
