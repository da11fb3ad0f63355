// The policy of strategy `cached` (cached.h), implemented independently and naively over the heaps
// of oracle.h: a thread's cache before the central heap. The strategy declares the numbers.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "property/oracle.h"

namespace ts::oracle {

// The numbers that strategy `cached` declares.
struct CacheRules {
  std::size_t largest_cached;  // block size
  std::size_t batch_bytes;
  unsigned most_in_batch;
  std::size_t largest_cache_bytes;
};

// One thread's cache over a central heap (owner 0).
class Cache {
 public:
  Cache(Heaps& central, const CacheRules& rules) : central_{central}, rules_{rules} {}

  std::optional<Address> allocate(std::size_t bytes, std::size_t alignment = 16) {
    const std::size_t block = block_for(bytes);
    if (alignment > 16 || block > rules_.largest_cached)
      return allocate_centrally(bytes, alignment);
    if (const std::optional<Address> newest = pop(block)) return newest;
    std::vector<Address> taken;
    while (taken.size() < batch(block)) {
      const std::optional<Address> payload = central_.allocate(0, bytes);
      if (!payload) break;
      taken.push_back(*payload);
    }
    if (taken.empty()) return allocate_centrally(bytes, alignment);
    // Stacked so that they are used in the order in which they were taken.
    for (std::size_t i = taken.size() - 1; i > 0; --i) {
      if (central_.block_bytes_at(taken[i]) <= rules_.largest_cached) {
        push(taken[i]);
      } else {
        central_.release(0, taken[i]);
      }
    }
    return taken.front();
  }

  void release(Address payload) {
    const std::size_t block = central_.block_bytes_at(payload);
    if (block > rules_.largest_cached) return central_.release(0, payload);
    push(payload);
    if (stacks_[block].size() > 2 * batch(block)) give_back(block, batch(block));
    if (bytes() > rules_.largest_cache_bytes) {
      for (const auto& [size, stack] : stacks_) give_back(size, stack.size() / 2);
    }
  }

  bool resize(Address payload, std::size_t bytes) { return central_.resize(0, payload, bytes); }

  void empty() {
    for (const auto& [size, stack] : stacks_) give_back(size, 0);
  }

  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& [size, stack] : stacks_) sum += size * stack.size();
    return sum;
  }
  bool holds(Address payload) const {
    for (const auto& [size, stack] : stacks_) {
      for (const Address cached : stack) {
        if (cached == payload) return true;
      }
    }
    return false;
  }

 private:
  // Cached blocks may complete a block that the central heap cannot provide otherwise.
  std::optional<Address> allocate_centrally(std::size_t bytes, std::size_t alignment) {
    if (const auto payload = central_.allocate(0, bytes, alignment)) return payload;
    empty();
    return central_.allocate(0, bytes, alignment);
  }

  std::size_t batch(std::size_t block) const {
    const std::size_t blocks = rules_.batch_bytes / block;
    return blocks < rules_.most_in_batch ? blocks : rules_.most_in_batch;
  }

  void push(Address payload) { stacks_[central_.block_bytes_at(payload)].push_back(payload); }

  std::optional<Address> pop(std::size_t block) {
    std::vector<Address>& stack = stacks_[block];
    if (stack.empty()) return std::nullopt;
    const Address newest = stack.back();
    stack.pop_back();
    return newest;
  }

  // All but the newest `keep`, newest first.
  void give_back(std::size_t block, std::size_t keep) {
    std::vector<Address>& stack = stacks_[block];
    while (stack.size() > keep) {
      central_.release(0, stack[stack.size() - keep - 1]);
      stack.erase(stack.end() - static_cast<std::ptrdiff_t>(keep) - 1);
    }
  }

  Heaps& central_;
  CacheRules rules_;
  std::map<std::size_t, std::vector<Address>> stacks_;  // by block size; newest last
};

}  // namespace ts::oracle
