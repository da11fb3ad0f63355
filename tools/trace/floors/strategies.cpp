// See strategies.h.
#include "trace/floors/strategies.h"

#include <algorithm>
#include <numeric>

#include "trace/floors/free_space.h"

namespace ts::trace {
namespace {

using Order = std::vector<std::uint32_t>;

std::uint64_t alignment_of(const Block& block) { return std::uint64_t{1} << block.log2_alignment; }

// All blocks that end, the earliest first.
Order by_end(const std::vector<Block>& blocks) {
  Order order;
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].end != never) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t one, std::uint32_t other) {
    return blocks[one].end < blocks[other].end;
  });
  return order;
}

// Places some of the blocks in the order of their beginnings, among others that have their places.
class Sweep {
 public:
  Sweep(const std::vector<Block>& blocks, Addresses& addresses, Fit fit)
      : blocks_{blocks},
        addresses_{addresses},
        fit_{fit},
        ends_{by_end(blocks)},
        space_{fit == Fit::best},
        is_taken_(blocks.size()) {}

  // A block that has its place, and is live when the sweep begins.
  void put(std::uint32_t block) {
    space_.take(addresses_[block], blocks_[block].size());
    is_taken_[block] = true;
  }

  // Blocks come in the order of their beginnings.
  void place(std::uint32_t number) {
    const Block& block = blocks_[number];
    release_until(block.begin);
    if (!stays(number)) {
      addresses_[number] = fit_ == Fit::best ? space_.best(block.size(), alignment_of(block))
                                             : space_.lowest(0, block.size(), alignment_of(block));
      space_.take(addresses_[number], block.size());
    }
    is_taken_[number] = true;
  }

 private:
  void release_until(std::uint64_t time) {
    for (; next_end_ < ends_.size() && blocks_[ends_[next_end_]].end <= time; ++next_end_) {
      const std::uint32_t number = ends_[next_end_];
      if (is_taken_[number]) space_.release(addresses_[number], blocks_[number].size());
      is_taken_[number] = false;
    }
  }

  // A resize in place: what the object no longer needs is free, or what it needs more is taken.
  bool stays(std::uint32_t number) {
    const std::uint32_t before = blocks_[number].previous;
    if (before == no_block || !is_taken_[before]) return false;
    const std::uint64_t old_size = blocks_[before].size();
    const std::uint64_t new_size = blocks_[number].size();
    const std::uint64_t address = addresses_[before];
    if (new_size > old_size) {
      if (space_.free_at(address + old_size) < new_size - old_size) return false;
      space_.take(address + old_size, new_size - old_size);
    } else if (new_size < old_size) {
      space_.release(address + new_size, old_size - new_size);
    }
    addresses_[number] = address;
    is_taken_[before] = false;  // its memory is this block's now
    return true;
  }

  const std::vector<Block>& blocks_;
  Addresses& addresses_;
  Fit fit_;
  Order ends_;
  std::size_t next_end_ = 0;
  FreeSpace space_;
  std::vector<bool> is_taken_;
};

// The first moment at which the blocks, both of a resize included, take most bytes.
std::uint64_t fullest_moment(const std::vector<Block>& blocks, const Order& ends) {
  std::uint64_t live = 0;
  std::uint64_t most = 0;
  std::uint64_t moment = 0;
  std::size_t next_end = 0;
  for (const Block& block : blocks) {
    for (; next_end < ends.size() && blocks[ends[next_end]].end <= block.begin; ++next_end) {
      live -= blocks[ends[next_end]].size();
    }
    live += block.size();
    if (live > most) {
      most = live;
      moment = block.begin;
    }
  }
  return moment;
}

// The blocks of the fullest moment, side by side. How far up they reach at any earlier time is
// known.
class Skyline {
 public:
  // `numbers`: in the order of their beginnings.
  Skyline(const std::vector<Block>& blocks, const Order& numbers, Addresses& addresses) {
    std::uint64_t top = 0;
    for (const std::uint32_t number : numbers) {
      addresses[number] = aligned_up(top, alignment_of(blocks[number]));
      top = addresses[number] + blocks[number].size();
      steps_.push_back({blocks[number].begin, top});
    }
  }

  // The end of the blocks that begin before `time`.
  std::uint64_t height_before(std::uint64_t time) const {
    const auto after = std::lower_bound(
        steps_.begin(), steps_.end(), time,
        [](const Step& step, std::uint64_t wanted) { return step.begin < wanted; });
    return after == steps_.begin() ? 0 : std::prev(after)->top;
  }

 private:
  struct Step {
    std::uint64_t begin;
    std::uint64_t top;
  };
  std::vector<Step> steps_;
};

// The blocks that end before the moment: each just above where the skyline is at its end.
void place_before(const std::vector<Block>& blocks, const Order& ends, std::uint64_t moment,
                  const Skyline& skyline, Addresses& addresses) {
  FreeSpace space{false};
  std::size_t next_end = 0;
  for (std::uint32_t i = 0; i < blocks.size() && blocks[i].begin <= moment; ++i) {
    for (; next_end < ends.size() && blocks[ends[next_end]].end <= blocks[i].begin; ++next_end) {
      space.release(addresses[ends[next_end]], blocks[ends[next_end]].size());
    }
    if (blocks[i].end > moment) continue;
    addresses[i] = space.lowest(skyline.height_before(blocks[i].end), blocks[i].size(),
                                alignment_of(blocks[i]));
    space.take(addresses[i], blocks[i].size());
  }
}

}  // namespace

Addresses sweep(const std::vector<Block>& blocks, Fit fit) {
  Addresses addresses(blocks.size());
  Sweep state{blocks, addresses, fit};
  for (std::uint32_t i = 0; i < blocks.size(); ++i) state.place(i);
  return addresses;
}

Addresses around_peak(const std::vector<Block>& blocks) {
  Addresses addresses(blocks.size());
  const Order ends = by_end(blocks);
  const std::uint64_t moment = fullest_moment(blocks, ends);
  Order at_peak;
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].is_live_at(moment)) at_peak.push_back(i);
  }
  const Skyline skyline{blocks, at_peak, addresses};
  place_before(blocks, ends, moment, skyline, addresses);
  Sweep after{blocks, addresses, Fit::lowest};
  for (const std::uint32_t number : at_peak) after.put(number);
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].begin > moment) after.place(i);
  }
  return addresses;
}

Addresses around_peak_backwards(const std::vector<Block>& blocks) {
  // What lives for ever ends, for this purpose, after everything else.
  std::uint64_t last = 0;
  for (const Block& block : blocks) {
    last = std::max(last, block.end == never ? block.begin + 1 : block.end);
  }
  ++last;
  Order order(blocks.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto end_of = [&](std::uint32_t i) { return std::min(blocks[i].end, last); };
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t one, std::uint32_t other) {
    return end_of(one) > end_of(other);
  });
  std::vector<Block> mirrored;
  mirrored.reserve(blocks.size());
  for (const std::uint32_t i : order) {
    Block block = blocks[i];
    block.begin = last - end_of(i);
    block.end = last - blocks[i].begin;
    block.previous = no_block;
    mirrored.push_back(block);
  }
  const Addresses found = around_peak(mirrored);
  Addresses addresses(blocks.size());
  for (std::size_t k = 0; k < order.size(); ++k) addresses[order[k]] = found[k];
  return addresses;
}

Addresses largest_first(const std::vector<Block>& blocks) {
  Order order(blocks.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t one, std::uint32_t other) {
    return blocks[one].size() > blocks[other].size();
  });
  Addresses addresses(blocks.size());
  Order placed;  // by address
  for (const std::uint32_t number : order) {
    const Block& block = blocks[number];
    std::uint64_t address = 0;
    for (const std::uint32_t other : placed) {
      const bool meet = block.begin < blocks[other].end && blocks[other].begin < block.end;
      if (!meet) continue;
      if (addresses[other] >= address + block.size()) break;  // and so are all that follow
      const std::uint64_t end = addresses[other] + blocks[other].size();
      address = std::max(address, aligned_up(end, alignment_of(block)));
    }
    addresses[number] = address;
    const auto place = std::upper_bound(
        placed.begin(), placed.end(), address,
        [&](std::uint64_t wanted, std::uint32_t other) { return wanted < addresses[other]; });
    placed.insert(place, number);
  }
  return addresses;
}

Merged merge_chains(const std::vector<Block>& blocks) {
  Merged merged;
  merged.of.resize(blocks.size());
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    const Block& block = blocks[i];
    if (block.previous == no_block) {
      merged.of[i] = static_cast<std::uint32_t>(merged.blocks.size());
      merged.blocks.push_back(block);
      continue;
    }
    merged.of[i] = merged.of[block.previous];
    Block& whole = merged.blocks[merged.of[i]];
    whole.bytes = std::max(whole.bytes, block.bytes);
    whole.end = block.end;
  }
  return merged;
}

}  // namespace ts::trace
