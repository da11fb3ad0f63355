// The trees of one version of a lock-free heap's free blocks, and the changes that operations make
// to them. A fit that searches by address needs one tree; best fit has a second one, by size, of
// the same blocks. versions.h decides which version is current.
//
// All functions take trees as values and return the changed ones; the builder holds the new nodes.
#pragma once

#include "classic/fit.h"
#include "classic/request.h"
#include "classic/version_tree.h"

namespace ts::classic {

struct Trees {
  NodeNumber by_address;
  NodeNumber by_size;  // 0 unless the fit searches by size
  bool operator==(const Trees&) const = default;
};

// How a found block is divided: free head (for alignment), the block for the program, free tail.
struct Division {
  Extent head;
  Extent taken;
  Extent tail;

  static Division of(const Extent& found, const Request& request) noexcept {
    const std::size_t head_bytes = head_before_aligned(found.address, request);
    const std::size_t tail_bytes = found.bytes - head_bytes - request.block_bytes;
    const std::size_t kept_tail = tail_bytes >= min_block_bytes ? tail_bytes : 0;
    const std::size_t taken_bytes = found.bytes - head_bytes - kept_tail;
    return {{found.address, head_bytes},
            {found.address + head_bytes, taken_bytes},
            {found.end() - kept_tail, kept_tail}};
  }
};

template <FitPolicy Fit>
struct FitTrees {
  static constexpr bool by_size_too = std::is_same_v<Fit, BestFit>;

  static Extent find(VersionBuilder& builder, const Trees& trees, std::size_t bytes) noexcept {
    if constexpr (by_size_too) return builder.smallest(trees.by_size, bytes);
    if constexpr (std::is_same_v<Fit, FirstFit>) return builder.lowest(trees.by_address, bytes);
    // Worst fit: the lowest of the largest.
    const std::size_t most = builder.largest(trees.by_address);
    return most < bytes ? Extent{0, 0} : builder.lowest(trees.by_address, most);
  }

  static Trees erase(VersionBuilder& builder, const Trees& trees, const Extent& block) noexcept {
    return {builder.erase<ByAddress>(trees.by_address, block),
            by_size_too ? builder.erase<BySize>(trees.by_size, block) : 0};
  }
  static Trees insert(VersionBuilder& builder, const Trees& trees, const Extent& block) noexcept {
    return {builder.insert<ByAddress>(trees.by_address, block),
            by_size_too ? builder.insert<BySize>(trees.by_size, block) : 0};
  }

  // Replaces a block by one that ends at the same address, with nothing free between their
  // beginnings.
  static Trees replace(VersionBuilder& builder, const Trees& trees, const Extent& block,
                       const Extent& fresh) noexcept {
    NodeNumber by_size = 0;
    if constexpr (by_size_too)
      by_size = builder.insert<BySize>(builder.erase<BySize>(trees.by_size, block), fresh);
    return {builder.replace(trees.by_address, block, fresh), by_size};
  }

  // Removes the block for the request; head and tail of the found block stay.
  static Trees cut(VersionBuilder& builder, Trees trees, const Extent& found,
                   const Request& request) noexcept {
    const Division division = Division::of(found, request);
    trees = division.tail.bytes != 0 ? replace(builder, trees, found, division.tail)
                                     : erase(builder, trees, found);
    return division.head.bytes != 0 ? insert(builder, trees, division.head) : trees;
  }

  // A block in the trees, and how many free blocks were merged into it.
  struct Merged {
    Extent block;
    std::ptrdiff_t neighbours;
  };
  // Adds an extent, merged with its neighbours.
  static Trees add(VersionBuilder& builder, const Trees& trees, const Extent& extent,
                   Merged& merged) noexcept {
    const VersionBuilder::Neighbours near = builder.neighbours(trees.by_address, extent.address);
    Trees next = trees;
    merged = {extent, 0};
    if (near.before.bytes != 0 && near.before.end() == extent.address) {
      next = erase(builder, next, near.before);
      merged.block = {near.before.address, near.before.bytes + extent.bytes};
      ++merged.neighbours;
    }
    if (near.after.bytes != 0 && near.after.address == extent.end()) {
      ++merged.neighbours;
      merged.block.bytes += near.after.bytes;
      return replace(builder, next, near.after, merged.block);
    }
    return insert(builder, next, merged.block);
  }

  // Removes at least `missing` bytes from the beginning of the free block at `end`, and sets
  // `taken` to them. The rest stays free if it can hold a block. Changes nothing if no free block
  // of that size begins there.
  static Trees cut_front(VersionBuilder& builder, const Trees& trees, std::uintptr_t end,
                         std::size_t missing, Extent& taken, bool& kept_rest) noexcept {
    const Extent next = builder.neighbours(trees.by_address, end).after;
    if (next.bytes == 0 || next.address != end || next.bytes < missing) return trees;
    const std::size_t rest = next.bytes - missing;
    kept_rest = rest >= min_block_bytes;
    taken = {end, kept_rest ? missing : next.bytes};
    const Trees without = erase(builder, trees, next);
    return kept_rest ? insert(builder, without, {end + missing, rest}) : without;
  }
};

}  // namespace ts::classic
