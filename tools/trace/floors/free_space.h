// The free memory during planning: gaps between blocks, and the endless one above them.
//
// Why it exists: first fit by address and best fit among a million gaps, each in logarithmic time.
// A treap by address, each node of which knows the longest gap below it. (Address-ordered first fit
// on a tree is an old idea: Stephenson 1983, "Fast Fits".) What it refuses to do: know what is not
// free.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace ts::trace {

inline std::uint64_t aligned_up(std::uint64_t address, std::uint64_t alignment) {
  return (address + alignment - 1) & ~(alignment - 1);
}

class FreeSpace {
 public:
  // knows_best: best() may be asked, which costs memory and time.
  explicit FreeSpace(bool knows_best);

  // The lowest address from `from` on at which so many bytes are free. They stay free.
  std::uint64_t lowest(std::uint64_t from, std::uint64_t size, std::uint64_t alignment) const;
  // An address in the shortest gap in which so many bytes are free; of equal gaps, the lowest.
  std::uint64_t best(std::uint64_t size, std::uint64_t alignment) const;
  // How many bytes are free from this address on.
  std::uint64_t free_at(std::uint64_t address) const;

  // These bytes must be free.
  void take(std::uint64_t address, std::uint64_t size);
  // These must not.
  void release(std::uint64_t address, std::uint64_t size);

 private:
  using Index = std::uint32_t;
  struct Node {
    std::uint64_t start;
    std::uint64_t length;
    std::uint64_t longest;  // of this and all below
    std::uint32_t priority;
    Index left;
    Index right;
  };
  static constexpr Index nil = 0;
  static constexpr std::uint64_t endless = std::uint64_t{1} << 62;

  std::optional<std::pair<std::uint64_t, std::uint64_t>> containing(std::uint64_t address) const;
  Index first_fit(Index node, std::uint64_t from, std::uint64_t size) const;
  void update(Index node);
  Index merge(Index left, Index right);
  std::pair<Index, Index> split(Index node, std::uint64_t start);  // those below, and the others
  void insert(std::uint64_t start, std::uint64_t length);
  void erase(std::uint64_t start, std::uint64_t length);

  bool knows_best_;
  std::vector<Node> nodes_;
  std::vector<Index> spare_;
  Index root_ = nil;
  std::uint32_t random_ = 2'463'534'242;  // the same tree in every run
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_length_;
};

}  // namespace ts::trace
