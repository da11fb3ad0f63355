// The mappings that make up a lock-free heap: any thread may add and remove them at any time,
// without a lock. The list itself only grows; an entry whose mapping is gone is reused. The thread
// that removes a mapping owns all of it.
#pragma once

#include "base/bits.h"
#include "base/event_counts.h"
#include "classic/leaving_memory.h"
#include "classic/node_pool.h"
#include "os/os.h"

namespace ts::classic {

class MappedRegions {
 public:
  struct Region {
    std::byte* begin;
    std::size_t bytes;
  };

  constexpr MappedRegions() = default;

  // Maps a region of at least `bytes`, a multiple of the page size; {null, 0} if there is no
  // memory.
  Region map(NodePool& pool, NodePool::Stash& stash, std::size_t bytes) noexcept {
    auto* const begin = static_cast<std::byte*>(os::map(bytes));
    if (begin == nullptr) return {nullptr, 0};
    const NodeNumber entry = claim_entry(pool, stash, bytes);
    if (entry == 0) {
      os::unmap_unused(begin, bytes);
      return {nullptr, 0};
    }
    // release: pairs with the acquire in for_each; an entry counts from the moment that it has an
    // address
    pool.at(entry).address.store(address_of(begin), std::memory_order_release);
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    maps_.fetch_add(1, std::memory_order_relaxed);
    if constexpr (counting) count_event(Event::growth_calls);
    if constexpr (counting) count_event(Event::growth_bytes, bytes);
    return {begin, bytes};
  }

  // Calls visit(Region) for every existing region, until a call returns false; then returns false.
  template <class Visit>
  bool for_each(const NodePool& pool, Visit visit) const noexcept {
    for (NodeNumber entry = first_.load(std::memory_order_acquire); entry != 0;) {
      const Node& node = pool.at(entry);
      const std::uintptr_t address = node.address.load(std::memory_order_acquire);
      const std::size_t bytes = node.bytes.load(std::memory_order_relaxed);
      entry = node.left.load(std::memory_order_relaxed);
      if (address != 0 && !visit(Region{reinterpret_cast<std::byte*>(address), bytes}))
        return false;
    }
    return true;
  }

  bool has(const NodePool& pool, const Region& wanted) const noexcept {
    return !for_each(pool, [&](const Region& region) {
      return region.begin != wanted.begin || region.bytes != wanted.bytes;
    });
  }

  // Unmaps a region; the caller must own all of it. Does nothing and returns false if the range is
  // not a region, if the system refuses (for instance at its limit on the number of mappings), or
  // if this thread is already in a call that others see (SeenByOthers).
  bool unmap(NodePool& pool, const Region& region) noexcept {
    if (SeenByOthers::is_now()) return false;
    const SeenByOthers seen;
    for (NodeNumber entry = first_.load(std::memory_order_acquire); entry != 0;) {
      Node& node = pool.at(entry);
      entry = node.left.load(std::memory_order_relaxed);
      if (node.address.load(std::memory_order_relaxed) != address_of(region.begin) ||
          node.bytes.load(std::memory_order_relaxed) != region.bytes)
        continue;
      // The address is cleared before the kernel can hand it out again; then `bytes`, which makes
      // the entry claimable. release: pairs with the claim of the entry; or, if the region stays,
      // as in map().
      node.address.store(0, std::memory_order_relaxed);
      if (!os::unmap(region.begin, region.bytes)) {
        node.address.store(address_of(region.begin), std::memory_order_release);
        return false;
      }
      node.bytes.store(0, std::memory_order_release);
      bytes_.fetch_sub(region.bytes, std::memory_order_relaxed);
      if constexpr (counting) count_event(Event::trim_calls);
      if constexpr (counting) count_event(Event::trimmed_bytes, region.bytes);
      return true;
    }
    return false;
  }

  std::size_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  // How many regions were mapped so far.
  std::size_t maps() const noexcept { return maps_.load(std::memory_order_relaxed); }

 private:
  // Claims an entry of the list whose region is gone, or creates one. 0 if there is no memory for a
  // node.
  NodeNumber claim_entry(NodePool& pool, NodePool::Stash& stash, std::size_t bytes) noexcept {
    for (NodeNumber entry = first_.load(std::memory_order_acquire); entry != 0;
         entry = pool.at(entry).left.load(std::memory_order_relaxed)) {
      std::size_t none = 0;
      if (pool.at(entry).bytes.load(std::memory_order_relaxed) == 0 &&
          pool.at(entry).bytes.compare_exchange_strong(none, bytes, std::memory_order_acquire,
                                                       std::memory_order_relaxed))
        return entry;
    }
    const NodeNumber entry = pool.take(stash);
    if (entry == 0) return 0;
    Node& node = pool.at(entry);
    node.address.store(0, std::memory_order_relaxed);
    node.bytes.store(bytes, std::memory_order_relaxed);
    NodeNumber head = first_.load(std::memory_order_relaxed);
    // release: a thread that follows the list sees the entry. Entries are never removed, so no ABA.
    do {
      node.left.store(head, std::memory_order_relaxed);
    } while (!first_.compare_exchange_weak(head, entry, std::memory_order_release,
                                           std::memory_order_relaxed));
    return entry;
  }

  // Nodes of the pool: left is the next entry, address 0 means no region, bytes 0 means free to be
  // claimed.
  std::atomic<NodeNumber> first_{0};
  std::atomic<std::size_t> bytes_{0};
  std::atomic<std::size_t> maps_{0};
};

}  // namespace ts::classic
