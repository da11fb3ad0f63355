// The free blocks of a lock-free heap: the versions of their trees, the blocks that wait for nodes,
// and counts of both. Splitting and merging are part of the version that is published, so the fit
// and the merging are exact at every moment.
//
//   take    -> publish(find, cut)     -> hand_out
//   release -> publish(add)           or, without nodes, wait_for_nodes
//   release_waiting -> release_list   before each operation, when there are nodes again
//
// Invariant at rest: blocks and bytes of the tree and of the waiting blocks add up to free_blocks()
// and free_bytes(). Between a swap and the count that follows it, the counts lag.
#pragma once

#include "classic/leaving_memory.h"
#include "classic/version_check.h"
#include "classic/versions.h"
#include "classic/waiting_blocks.h"
#include "os/os.h"

namespace ts::classic {

template <FitPolicy Fit>
class VersionedFreeBlocks {
 public:
  constexpr VersionedFreeBlocks() = default;

  constexpr NodePool& pool() noexcept { return versions_.pool(); }

  // Returns the block that the fit chooses in `payload`, if published. `unchanged` if no free block
  // is large enough.
  Attempt take(NodePool::Stash& stash, const Request& request, void*& payload) noexcept {
    Extent found{};
    const Attempt result =
        versions_.publish(stash, [&](VersionBuilder& builder, const Trees& trees) {
          if constexpr (counting) count_event(Event::searches);
          found = Edits::find(builder, trees, request.search_bytes);
          return found.bytes == 0 ? trees : Edits::cut(builder, trees, found, request);
        });
    if (result == Attempt::published) payload = hand_out(found, request);
    return result;
  }

  // Takes at least `missing` bytes from the beginning of the free block at `end`, if a block of at
  // least that size begins there; returns how many.
  std::size_t take_behind(NodePool::Stash& stash, std::uintptr_t end,
                          std::size_t missing) noexcept {
    Extent taken{};
    bool kept_rest = false;
    const Attempt result =
        versions_.publish(stash, [&](VersionBuilder& builder, const Trees& trees) {
          return Edits::cut_front(builder, trees, end, missing, taken, kept_rest);
        });
    if (result != Attempt::published) return 0;
    count_free(-static_cast<std::ptrdiff_t>(taken.bytes), kept_rest ? 0 : -1);
    if constexpr (counting) count_event(Event::merges);
    if constexpr (counting) count_event(Event::splits, kept_rest ? 1 : 0);
    return taken.bytes;
  }

  // Takes exactly this block, if it is free and whole.
  bool take_whole(NodePool::Stash& stash, const Extent& block) noexcept {
    const Attempt result =
        versions_.publish(stash, [&](VersionBuilder& builder, const Trees& trees) {
          const bool is_free = builder.neighbours(trees.by_address, block.address).after == block;
          return is_free ? Edits::erase(builder, trees, block) : trees;
        });
    if (result != Attempt::published) return false;
    count_free(-static_cast<std::ptrdiff_t>(block.bytes), -1);
    return true;
  }

  // Adds memory of the caller to the free blocks, and returns it, merged with its neighbours. If
  // there are no nodes for it, it waits: {0, 0}.
  Extent release(NodePool::Stash& stash, const Extent& extent) noexcept {
    const Extent free = try_release(stash, extent);
    if (free.bytes != 0) return free;
    Block* const block = block_at(extent.address);
    block->set_tag(Tag{extent.bytes, 0, 0});
    count_waiting(static_cast<std::ptrdiff_t>(extent.bytes), 1);
    waiting_.push(block, block);
    return {};
  }

  // Only when there are nodes: a futile walk of the list would make each call linear.
  void release_waiting(NodePool::Stash& stash) noexcept {
    if (waiting_.is_empty()) [[likely]]
      return;
    if (pool().reserve(stash, nodes_per_release)) release_list(stash, waiting_.take_all());
  }

  bool any_waits() const noexcept { return !waiting_.is_empty(); }

  // Takes out free blocks of several pages, largest first, discards their pages, and puts them
  // back: no lock, and no thread waits. True if there was one.
  bool discard_pages(NodePool::Stash& stash) noexcept {
    if (SeenByOthers::is_now()) return false;
    const SeenByOthers seen;
    Block* taken = nullptr;
    for (;;) {
      Extent found{};
      const Attempt result =
          versions_.publish(stash, [&](VersionBuilder& builder, const Trees& trees) {
            const std::size_t most = builder.largest(trees.by_address);
            found = builder.lowest(trees.by_address,
                                   most > discard_block_bytes ? most : discard_block_bytes);
            return found.bytes == 0 ? trees : Edits::erase(builder, trees, found);
          });
      if (result != Attempt::published) break;
      waiting_bytes_.fetch_add(found.bytes, std::memory_order_relaxed);
      Block* const block = block_at(found.address);
      block->set_tag(Tag{found.bytes, 0, 0});
      WaitingBlocks::link(block, taken);
      taken = block;
      const std::uintptr_t begin = align_up(found.address + min_block_bytes, os::page_bytes());
      const std::uintptr_t end = align_down(found.end(), os::page_bytes());
      os::discard(reinterpret_cast<void*>(begin), end - begin);
      if constexpr (counting) count_event(Event::purge_calls);
      if constexpr (counting) count_event(Event::purged_bytes, end - begin);
    }
    const bool any = taken != nullptr;
    release_list(stash, taken);
    return any;
  }

  std::size_t free_bytes() const noexcept { return free_bytes_.load(std::memory_order_relaxed); }

  void measure(HeapMeasures& measures) const noexcept {
    measures.free_bytes = free_bytes();
    measures.free_blocks = free_blocks_.load(std::memory_order_relaxed);
    measures.cached_bytes = waiting_bytes_.load(std::memory_order_relaxed);
  }

  // Visits the blocks of an extent, until a call returns false; then returns false. No other thread
  // may be inside.
  bool walk(const Extent& all, BlockVisitor visit, void* argument) noexcept {
    NodePool::Stash none{};
    const NodeNumber tree = versions_.trees().by_address;
    Block* block = block_at(all.address);
    while (block->address() != all.end()) {
      VersionBuilder reader{pool(), none};
      const Extent free = reader.neighbours(tree, block->address()).after;
      const bool is_free = free.bytes != 0 && free.address == block->address();
      const std::size_t bytes = is_free ? free.bytes : block->block_bytes();
      // A block that is neither in the tree nor in use waits for nodes.
      const BlockState state = is_free               ? BlockState::free
                               : block->tag().used() ? BlockState::used
                                                     : BlockState::cached;
      if (!visit({block->payload(), bytes - tag_bytes, state, 0}, argument)) return false;
      block = Block::at(block->begin() + bytes);
    }
    return true;
  }

  // No other thread may be inside.
  bool is_valid() noexcept {
    const Trees trees = versions_.trees();
    VersionCheck<ByAddress> by_address{pool()};
    if (!by_address.is_valid(trees.by_address)) return false;
    std::size_t waiting_blocks = 0;
    std::size_t waiting_bytes = 0;
    for (const Block* block = waiting_.newest(); block != nullptr;
         block = WaitingBlocks::next_of(block)) {
      ++waiting_blocks;
      waiting_bytes += block->block_bytes();
    }
    if (waiting_bytes != waiting_bytes_.load(std::memory_order_relaxed) ||
        by_address.bytes() + waiting_bytes != free_bytes() ||
        by_address.blocks() + waiting_blocks != free_blocks_.load(std::memory_order_relaxed))
      return false;
    if constexpr (!Edits::by_size_too) return true;
    VersionCheck<BySize> by_size{pool()};
    return by_size.is_valid(trees.by_size) && by_size.bytes() == by_address.bytes() &&
           by_size.blocks() == by_address.blocks();
  }

 private:
  using Edits = FitTrees<Fit>;

  static constexpr std::size_t discard_block_bytes =
      std::size_t{64} << 10;  // smaller blocks are not worth a system call each
  // Two paths of a tree, as deep as that of a million blocks.
  static constexpr unsigned nodes_per_release = 128;

  static Block* block_at(std::uintptr_t address) noexcept {
    return Block::at(reinterpret_cast<std::byte*>(address));
  }

  // Counts and tags a block that this thread has taken.
  void* hand_out(const Extent& found, const Request& request) noexcept {
    const Division division = Division::of(found, request);
    const std::ptrdiff_t kept =
        (division.head.bytes != 0 ? 1 : 0) + (division.tail.bytes != 0 ? 1 : 0);
    count_free(-static_cast<std::ptrdiff_t>(division.taken.bytes), kept - 1);
    if constexpr (counting) count_event(Event::splits, static_cast<std::uint64_t>(kept));
    Block* const block = block_at(division.taken.address);
    block->set_tag(Tag{division.taken.bytes, 0, Tag::used_flag});
    return block->payload();
  }

  // As release(), but {0, 0} and nothing changed if there is no memory for nodes.
  Extent try_release(NodePool::Stash& stash, const Extent& extent) noexcept {
    typename Edits::Merged merged{};
    const Attempt result =
        versions_.publish(stash, [&](VersionBuilder& builder, const Trees& trees) {
          return Edits::add(builder, trees, extent, merged);
        });
    if (result != Attempt::published) return {};
    count_free(static_cast<std::ptrdiff_t>(extent.bytes), 1 - merged.neighbours);
    if constexpr (counting)
      count_event(Event::merges, static_cast<std::uint64_t>(merged.neighbours));
    return merged.block;
  }

  // Frees a chain of the caller's blocks; when nodes run out, the rest waits.
  void release_list(NodePool::Stash& stash, Block* list) noexcept {
    while (list != nullptr) {
      Block* const next = WaitingBlocks::next_of(list);
      const Extent extent{list->address(), list->block_bytes()};
      if (try_release(stash, extent).bytes == 0) break;
      count_waiting(-static_cast<std::ptrdiff_t>(extent.bytes), -1);
      list = next;
    }
    if (list == nullptr) return;
    Block* last = list;
    while (Block* next = WaitingBlocks::next_of(last)) last = next;
    waiting_.push(list, last);
  }

  void count_free(std::ptrdiff_t bytes, std::ptrdiff_t blocks) noexcept {
    free_bytes_.fetch_add(static_cast<std::size_t>(bytes), std::memory_order_relaxed);
    free_blocks_.fetch_add(static_cast<std::size_t>(blocks), std::memory_order_relaxed);
  }

  // Blocks that wait for nodes are free, and kept aside.
  void count_waiting(std::ptrdiff_t bytes, std::ptrdiff_t blocks) noexcept {
    count_free(bytes, blocks);
    waiting_bytes_.fetch_add(static_cast<std::size_t>(bytes), std::memory_order_relaxed);
  }

  Versions<Fit> versions_;
  WaitingBlocks waiting_;
  std::atomic<std::size_t> free_bytes_{0};  // statistics; the threshold of trimming
  std::atomic<std::size_t> free_blocks_{0};
  std::atomic<std::size_t> waiting_bytes_{0};  // of free_bytes_, in waiting_
};

}  // namespace ts::classic
