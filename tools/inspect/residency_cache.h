// Caches which pages of a process were resident at earlier samples, in blocks of 2 MiB that were
// mostly resident: without huge pages, most of the cost of a sample is asking the kernel about each
// page. top.cpp checks the sum against the kernel's.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "inspect/list.h"
#include "inspect/range.h"

namespace ts {

class ResidencyCache {
 public:
  static constexpr std::size_t block_bytes = std::size_t{2} << 20;

  // Begins a sample of these addresses. Drops everything about others, and a rotating sixteenth of
  // the rest, so that no error persists.
  void begin_look(const Range& range) {
    const std::uintptr_t first = (range.begin + block_bytes - 1) / block_bytes;
    const std::size_t count = std::max(first, range.end / block_bytes) - first;
    if (first != first_ || count < blocks_.count()) blocks_.clear();
    first_ = first;
    while (blocks_.count() < count) blocks_.add({});
    turn_ = (turn_ + 1) % turns;
    for (std::size_t i = count * turn_ / turns; i < count * (turn_ + 1) / turns; ++i)
      blocks_[i].is_cached = false;
  }

  // False if the cache was empty.
  bool forget() {
    bool was_any = false;
    for (Block& block : blocks_) {
      was_any |= block.is_cached;
      block.is_cached = false;
    }
    return was_any;
  }

  bool is_cached(std::uintptr_t address) const {
    const std::uintptr_t i = address / block_bytes - first_;
    return i < blocks_.count() && blocks_[i].is_cached;
  }

  // The start of the next cached block after the address, or `limit` if that comes first.
  std::uintptr_t next_cached(std::uintptr_t address, std::uintptr_t limit) const {
    const std::uintptr_t end = (first_ + blocks_.count()) * block_bytes;
    std::uintptr_t at = std::max(address, first_ * block_bytes);
    while (at < limit && at < end && !is_cached(at)) at = (at / block_bytes + 1) * block_bytes;
    return at < end ? std::min(at, limit) : limit;
  }

  // Calls `visit(range)` for each resident range of a cached block, in order.
  template <class Visit>
  void for_each_range(std::uintptr_t address, Visit visit) const {
    const Block& block = blocks_[address / block_bytes - first_];
    const std::uintptr_t begin = address / block_bytes * block_bytes;
    for (std::size_t i = 0; i < units_of_block;) {
      const std::size_t from = block.next(i, true);
      i = block.next(from, false);
      if (from != i) visit(Range{begin + from * unit_bytes, begin + i * unit_bytes});
    }
  }

  // Records what is resident in a window; windows come in order. Caches blocks within it that are
  // mostly resident.
  void note(const Range& window, const Range* regions, std::size_t count) {
    std::size_t region = 0;
    const std::uintptr_t end = std::min(window.end / block_bytes, first_ + blocks_.count());
    for (std::uintptr_t i = std::max((window.begin + block_bytes - 1) / block_bytes, first_);
         i < end; ++i) {
      const Range of_block{i * block_bytes, (i + 1) * block_bytes};
      while (region < count && regions[region].end <= of_block.begin) ++region;
      Block& block = blocks_[i - first_];
      block = {};
      std::size_t units = 0;
      for (std::size_t r = region; r < count && regions[r].begin < of_block.end; ++r) {
        const std::uintptr_t from = std::max(regions[r].begin, of_block.begin) - of_block.begin;
        const std::uintptr_t to = std::min(regions[r].end, of_block.end) - of_block.begin;
        units += block.add(from / unit_bytes, to / unit_bytes);
      }
      block.is_cached = units >= max_units;
    }
  }

 private:
  static constexpr std::size_t unit_bytes = 4096;  // an OS page, or a part of it
  static constexpr std::size_t units_of_block = block_bytes / unit_bytes;
  static constexpr std::size_t max_units = units_of_block - units_of_block / 8;
  static constexpr std::size_t turns = 16;

  struct Block {
    std::uint64_t resident[units_of_block / 64] = {};  // a bit for each unit
    bool is_cached = false;

    std::size_t add(std::size_t from, std::size_t to) {
      for (std::size_t i = from; i < to;) {
        const std::size_t bits = std::min(to - i, 64 - i % 64);
        resident[i / 64] |= ~std::uint64_t{0} >> (64 - bits) << i % 64;
        i += bits;
      }
      return to - from;
    }
    // The next unit from there on that is, or is not, resident; units_of_block if there is none.
    std::size_t next(std::size_t from, bool is_resident) const {
      while (from < units_of_block) {
        const std::uint64_t word = is_resident ? resident[from / 64] : ~resident[from / 64];
        const std::uint64_t rest = word >> from % 64;
        if (rest != 0) return from + static_cast<std::size_t>(std::countr_zero(rest));
        from = (from / 64 + 1) * 64;
      }
      return units_of_block;
    }
  };

  std::uintptr_t first_ = 0;  // number of the first block
  List<Block> blocks_;
  std::size_t turn_ = 0;
};

}  // namespace ts
