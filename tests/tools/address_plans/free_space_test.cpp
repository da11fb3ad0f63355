// The treap of gaps, against a row of cells that are free or not.
#include "trace/floors/free_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace ts::testing {
namespace {

using trace::FreeSpace;

class Cells {
 public:
  static constexpr std::uint64_t count = 4096;

  bool is_free(std::uint64_t address, std::uint64_t size) const {
    for (std::uint64_t i = address; i < std::min(address + size, count); ++i) {
      if (is_taken_[i]) return false;
    }
    return true;
  }
  std::uint64_t lowest(std::uint64_t from, std::uint64_t size, std::uint64_t alignment) const {
    std::uint64_t address = (from + alignment - 1) / alignment * alignment;
    while (!is_free(address, size)) address += alignment;
    return address;
  }
  // The lengths of all gaps that end; the endless one is not among them.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> gaps() const {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> found;
    std::uint64_t start = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (!is_taken_[i]) continue;
      if (i > start) found.emplace_back(i - start, start);
      start = i + 1;
    }
    return found;
  }
  std::uint64_t end() const {
    std::uint64_t last = count;
    while (last > 0 && !is_taken_[last - 1]) --last;
    return last;
  }
  void mark(std::uint64_t address, std::uint64_t size, bool taken) {
    for (std::uint64_t i = address; i < address + size; ++i) is_taken_[i] = taken;
  }

 private:
  std::vector<bool> is_taken_ = std::vector<bool>(count);
};

// The shortest gap that has room, the lowest of equal ones.
std::uint64_t best_fit(const Cells& cells, std::uint64_t size, std::uint64_t alignment) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> gaps = cells.gaps();
  std::sort(gaps.begin(), gaps.end());
  for (const auto& [length, start] : gaps) {
    const std::uint64_t address = (start + alignment - 1) / alignment * alignment;
    if (address + size <= start + length) return address;
  }
  return (cells.end() + alignment - 1) / alignment * alignment;
}

TEST(FreeSpace, AsCellsWould) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random{seed};
    const auto below = [&](std::uint64_t end) { return random() % end; };
    FreeSpace space{true};
    Cells cells;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;
    for (int step = 0; step < 3000; ++step) {
      if (taken.size() < 60 && below(2) == 0) {
        const std::uint64_t size = 1 + below(40);
        const std::uint64_t alignment = std::uint64_t{1} << below(6);
        const std::uint64_t from = below(3) == 0 ? below(1500) : 0;
        const std::uint64_t lowest = space.lowest(from, size, alignment);
        const std::uint64_t best = space.best(size, alignment);
        ASSERT_EQ(lowest, cells.lowest(from, size, alignment)) << "seed " << seed;
        ASSERT_EQ(best, best_fit(cells, size, alignment)) << "seed " << seed;
        const std::uint64_t address = below(2) == 0 ? lowest : best;
        if (address + size > Cells::count) continue;
        space.take(address, size);
        cells.mark(address, size, true);
        taken.emplace_back(address, size);
      } else if (!taken.empty()) {
        const std::size_t place = below(taken.size());
        auto& [address, size] = taken[place];
        // Sometimes only the end of it, as a resize in place does.
        const std::uint64_t kept = below(4) == 0 ? below(size) : 0;
        space.release(address + kept, size - kept);
        cells.mark(address + kept, size - kept, false);
        size = kept;
        if (kept == 0) taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(place));
      }
      const std::uint64_t address = below(Cells::count / 2);
      std::uint64_t free_bytes = 0;
      while (address + free_bytes < Cells::count && cells.is_free(address + free_bytes, 1)) {
        ++free_bytes;
      }
      if (address + free_bytes < Cells::count) {
        ASSERT_EQ(space.free_at(address), free_bytes);
      } else {
        ASSERT_GE(space.free_at(address), free_bytes);
      }
    }
  }
}

}  // namespace
}  // namespace ts::testing
