// Checks a tree of free blocks: the order, and the largest block of each subtree. No thread may be
// changing the tree.
#pragma once

#include "classic/version_tree.h"

namespace ts::classic {

template <class Order>
class VersionCheck {
 public:
  explicit VersionCheck(NodePool& pool) noexcept : reader_{pool, none_} {}

  // Adds the blocks of the tree to blocks() and bytes().
  bool is_valid(NodeNumber tree) noexcept { return is_valid_below(tree, nullptr, nullptr); }

  std::size_t blocks() const noexcept { return blocks_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  bool is_valid_below(NodeNumber t, const Extent* after, const Extent* before) noexcept {
    if (t == 0) return true;
    const Extent here = reader_.extent(t);
    ++blocks_;
    bytes_ += here.bytes;
    if ((after != nullptr && !Order::before(*after, here)) ||
        (before != nullptr && !Order::before(here, *before)))
      return false;
    std::size_t most = here.bytes;
    for (const NodeNumber child : {reader_.left(t), reader_.right(t)})
      most = reader_.largest(child) > most ? reader_.largest(child) : most;
    return (!Order::augmented || reader_.largest(t) == most) &&
           is_valid_below(reader_.left(t), after, &here) &&
           is_valid_below(reader_.right(t), &here, before);
  }

  NodePool::Stash none_{};
  VersionBuilder reader_;
  std::size_t blocks_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace ts::classic
