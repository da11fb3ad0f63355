#include "classic/node_pool.h"

#include "base/bits.h"
#include "os/os.h"

namespace ts::classic {
namespace {

constexpr std::uint64_t number_mask = (std::uint64_t{1} << node_number_bits) - 1;

constexpr NodeNumber number_of(std::uint64_t head) noexcept {
  return static_cast<NodeNumber>(head & number_mask);
}

// The stack's next word: `number` on top, and the count of operations plus one.
constexpr std::uint64_t next_head(std::uint64_t head, NodeNumber number) noexcept {
  return ((head >> node_number_bits) + 1) << node_number_bits | number;
}

}  // namespace

bool NodePool::refill_slow(Stash& stash) noexcept {
  // acquire: pairs with the release in share_slow, so that the chain's links are seen
  std::uint64_t head = chains_.load(std::memory_order_acquire);
  while (number_of(head) != 0) {
    // The chain may be taken and used by others while we read it; then the exchange fails.
    const Node& first = at(number_of(head));
    const NodeNumber next_chain = first.right.load(std::memory_order_relaxed);
    const std::size_t count = first.bytes.load(std::memory_order_relaxed);
    if (chains_.compare_exchange_weak(head, next_head(head, next_chain & number_mask),
                                      std::memory_order_acquire, std::memory_order_acquire)) {
      stash = {static_cast<NodeNumber>((head & number_mask)), static_cast<unsigned>(count)};
      return true;
    }
  }
  return refill_fresh(stash);
}

bool NodePool::refill_fresh(Stash& stash) noexcept {
  NodeNumber begin = next_fresh_.load(std::memory_order_relaxed);
  do {
    if (begin >= number_mask - fresh_nodes) return false;  // every number is in use
    if (!map_slab(begin >> slab_bits)) return false;
  } while (
      !next_fresh_.compare_exchange_weak(begin, begin + fresh_nodes, std::memory_order_relaxed));
  static_assert(slab_nodes % fresh_nodes == 0);
  for (NodeNumber i = 0; i < fresh_nodes; ++i) put(stash, begin + fresh_nodes - 1 - i);
  return true;
}

bool NodePool::map_slab(NodeNumber slab) noexcept {
  Node* expected = nullptr;
  if (slabs_[slab].load(std::memory_order_acquire) != nullptr) return true;
  constexpr std::size_t bytes = slab_nodes * sizeof(Node);
  auto* const nodes = static_cast<Node*>(os::map(bytes));
  if (nodes == nullptr) return false;
  // release: a thread that finds the slab finds it mapped (zero-filled, and all-zero is a valid
  // node)
  if (!slabs_[slab].compare_exchange_strong(expected, nodes, std::memory_order_acq_rel))
    os::unmap_unused(nodes, bytes);
  return true;
}

bool NodePool::reserve(Stash& stash, unsigned count) noexcept {
  while (stash.count < count) {
    Stash more{};
    if (!refill_slow(more)) return false;
    while (more.first != 0) put(stash, take(more));
  }
  return true;
}

// Moves `count` nodes of a stash to the shared stack, as one chain.
void NodePool::share_slow(Stash& stash, unsigned count) noexcept {
  const NodeNumber chain = stash.first;
  NodeNumber last = chain;
  for (unsigned i = 1; i < count; ++i) last = at(last).left.load(std::memory_order_relaxed);
  stash.first = at(last).left.load(std::memory_order_relaxed);
  stash.count -= count;
  at(last).left.store(0, std::memory_order_relaxed);
  at(chain).bytes.store(count, std::memory_order_relaxed);
  std::uint64_t head = chains_.load(std::memory_order_relaxed);
  do {
    at(chain).right.store(number_of(head), std::memory_order_relaxed);
  } while (!chains_.compare_exchange_weak(head, next_head(head, chain), std::memory_order_release,
                                          std::memory_order_relaxed));
}

void NodePool::destroy() noexcept {
  for (std::atomic<Node*>& slab : slabs_) {
    if (Node* nodes = slab.exchange(nullptr, std::memory_order_relaxed))
      os::unmap_unused(nodes, slab_nodes * sizeof(Node));
  }
}

std::size_t NodePool::mapped_bytes() const noexcept {
  std::size_t bytes = 0;
  for (const std::atomic<Node*>& slab : slabs_) {
    if (slab.load(std::memory_order_relaxed) != nullptr) bytes += slab_nodes * sizeof(Node);
  }
  return bytes;
}

}  // namespace ts::classic
