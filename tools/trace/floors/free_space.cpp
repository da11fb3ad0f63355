// A treap; see free_space.h.
#include "trace/floors/free_space.h"

#include <algorithm>

namespace ts::trace {

FreeSpace::FreeSpace(bool knows_best) : knows_best_{knows_best}, nodes_(1) {
  nodes_[nil] = {0, 0, 0, 0, nil, nil};
  insert(0, endless);
}

std::uint64_t FreeSpace::lowest(std::uint64_t from, std::uint64_t size,
                                std::uint64_t alignment) const {
  for (;;) {
    const Node& gap = nodes_[first_fit(root_, from, size)];
    const std::uint64_t address = aligned_up(std::max(from, gap.start), alignment);
    if (address + size <= gap.start + gap.length) return address;
    from = gap.start + gap.length;
  }
}

std::uint64_t FreeSpace::best(std::uint64_t size, std::uint64_t alignment) const {
  for (auto gap = by_length_.lower_bound({size, 0});; ++gap) {
    const std::uint64_t address = aligned_up(gap->second, alignment);
    if (address + size <= gap->second + gap->first) return address;
  }
}

std::uint64_t FreeSpace::free_at(std::uint64_t address) const {
  const auto gap = containing(address);
  return gap ? gap->first + gap->second - address : 0;
}

void FreeSpace::take(std::uint64_t address, std::uint64_t size) {
  const auto [start, length] = *containing(address);
  erase(start, length);
  if (address > start) insert(start, address - start);
  const std::uint64_t end = start + length;
  if (address + size < end) insert(address + size, end - address - size);
}

void FreeSpace::release(std::uint64_t address, std::uint64_t size) {
  std::uint64_t start = address;
  std::uint64_t end = address + size;
  if (const auto above = containing(end)) {
    erase(above->first, above->second);
    end += above->second;
  }
  if (const auto below = address > 0 ? containing(address - 1) : std::nullopt) {
    erase(below->first, below->second);
    start = below->first;
  }
  insert(start, end - start);
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> FreeSpace::containing(
    std::uint64_t address) const {
  Index at = root_;
  while (at != nil) {
    const Node& node = nodes_[at];
    if (address < node.start) {
      at = node.left;
    } else if (address >= node.start + node.length) {
      at = node.right;
    } else {
      return std::pair{node.start, node.length};
    }
  }
  return std::nullopt;
}

// A subtree of which all gaps end at or before `from` is skipped, so at most one path leads in vain
// to gaps that `from` cuts short.
FreeSpace::Index FreeSpace::first_fit(Index at, std::uint64_t from, std::uint64_t size) const {
  if (at == nil || nodes_[at].longest < size) return nil;
  const Node& node = nodes_[at];
  const std::uint64_t end = node.start + node.length;
  if (end > from) {
    if (const Index found = first_fit(node.left, from, size); found != nil) return found;
    if (std::max(node.start, from) + size <= end) return at;
  }
  return first_fit(node.right, from, size);
}

void FreeSpace::update(Index at) {
  Node& node = nodes_[at];
  node.longest = std::max({node.length, nodes_[node.left].longest, nodes_[node.right].longest});
}

FreeSpace::Index FreeSpace::merge(Index left, Index right) {
  if (left == nil) return right;
  if (right == nil) return left;
  if (nodes_[left].priority > nodes_[right].priority) {
    nodes_[left].right = merge(nodes_[left].right, right);
    update(left);
    return left;
  }
  nodes_[right].left = merge(left, nodes_[right].left);
  update(right);
  return right;
}

std::pair<FreeSpace::Index, FreeSpace::Index> FreeSpace::split(Index at, std::uint64_t start) {
  if (at == nil) return {nil, nil};
  if (nodes_[at].start < start) {
    const auto [below, others] = split(nodes_[at].right, start);
    nodes_[at].right = below;
    update(at);
    return {at, others};
  }
  const auto [below, others] = split(nodes_[at].left, start);
  nodes_[at].left = others;
  update(at);
  return {below, at};
}

void FreeSpace::insert(std::uint64_t start, std::uint64_t length) {
  Index at = nil;
  if (spare_.empty()) {
    at = static_cast<Index>(nodes_.size());
    nodes_.emplace_back();
  } else {
    at = spare_.back();
    spare_.pop_back();
  }
  // Marsaglia's xorshift.
  random_ ^= random_ << 13;
  random_ ^= random_ >> 17;
  random_ ^= random_ << 5;
  nodes_[at] = {start, length, length, random_, nil, nil};
  const auto [below, others] = split(root_, start);
  root_ = merge(merge(below, at), others);
  if (knows_best_) by_length_.emplace(length, start);
}

void FreeSpace::erase(std::uint64_t start, std::uint64_t length) {
  const auto [below, rest] = split(root_, start);
  const auto [gap, others] = split(rest, start + 1);
  spare_.push_back(gap);
  root_ = merge(below, others);
  if (knows_best_) by_length_.erase({length, start});
}

}  // namespace ts::trace
