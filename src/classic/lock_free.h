// Strategy `lockfree`: malloc and free take no lock (report B's proposed successor to its mutex).
// The set of free blocks is an immutable tree, and one atomic word names its current version. An
// operation builds the next version and swaps the word; if another swap came first, it retries.
// Splitting and merging are part of the version, so nothing is deferred.
//
//   allocate -> WithStash                          node_stashes.h: the thread's free nodes
//            -> release_waiting                    waiting_blocks.h: frees that found no nodes
//            -> VersionedFreeBlocks::take          versioned_free_blocks.h
//               -> Versions::publish               versions.h: the word, and why a swap is sound
//                  -> FitTrees::find, cut          fit_trees.h: the fit, splitting and merging
//                     -> VersionBuilder            version_tree.h: the tree, copied on write
//                        -> NodePool::take, put    node_pool.h
//            -> LockFreeSegment::grow              lock_free_segment.h: regions or a break; again
//   release  -> WithStash, release_waiting
//            -> VersionedFreeBlocks::release -> publish -> FitTrees::add
//            -> LockFreeSegment::unmap_if_region   above the trim threshold; seen by others
//
// Invariants: the tag of a block in use holds its size, as in the other strategies; only the tree
// describes free blocks. Every byte of the segment is in one block: in use, in the current tree, or
// waiting for nodes.
//
// Progress: lock-free (versions.h). Growth asks the kernel for memory, which has locks of its own.
// A break (sbrk or a caller's buffer) can only be moved under a lock, so the drop-in libraries grow
// by mmap.
#pragma once

#include "classic/config.h"
#include "classic/lock_free_segment.h"
#include "classic/node_stashes.h"
#include "classic/versioned_free_blocks.h"

namespace ts::classic {

template <FitPolicy Fit>
class LockFree : public TaggedPayloads {
 public:
  constexpr explicit LockFree(const HeapConfig& config = by_mmap) noexcept
      : trim_threshold_bytes_{config.trim_threshold_bytes},
        segment_{config.source},
        stashes_{free_.pool()} {}

  void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    const Request request = Request::of(bytes, alignment);
    if (request.search_bytes == 0) return nullptr;
    const WithStash with{stashes_};
    free_.release_waiting(with.stash());
    for (;;) {
      void* payload = nullptr;
      const Attempt result = free_.take(with.stash(), request, payload);
      if (result == Attempt::no_memory) return nullptr;
      if (result == Attempt::published) return payload;
      if (!segment_.grow(free_, with.stash(), request.search_bytes)) return nullptr;
    }
  }

  void release(void* payload) noexcept {
    Block* const block = Block::of_payload(payload);
    const Tag tag = block->tag();
    require(tag.used() && tag.block_bytes() >= min_block_bytes, not_in_use, payload);
    block->set_tag(tag.without(Tag::used_flag));
    const WithStash with{stashes_};
    free_.release_waiting(with.stash());
    const Extent free = free_.release(with.stash(), {block->address(), tag.block_bytes()});
    if (free_.free_bytes() >= trim_threshold_bytes_)
      segment_.unmap_if_region(free_, with.stash(), free);
  }

  bool resize(void* payload, std::size_t bytes) noexcept {
    Block* const block = Block::of_payload(payload);
    const std::size_t have = block->block_bytes();
    const std::size_t wanted = block_bytes_for(bytes);
    if (wanted == 0) return false;
    const WithStash with{stashes_};
    std::size_t holds = have;
    if (wanted > have) {
      const std::size_t more =
          free_.take_behind(with.stash(), block->address() + have, wanted - have);
      if (more == 0) return false;
      holds += more;
    } else if (have - wanted >= min_block_bytes) {
      holds = wanted;
    }
    block->set_tag(Tag{holds, 0, Tag::used_flag});
    if (holds < have) {
      if constexpr (counting) count_event(Event::splits);
      free_.release(with.stash(), {block->address() + holds, have - holds});
    }
    return true;
  }

  HeapMeasures measures() noexcept {
    HeapMeasures measures{.heaps = 1};
    segment_.measure(free_, measures);
    free_.measure(measures);
    return measures.bounded();
  }

  // No other thread may be inside.
  bool walk(BlockVisitor visit, void* argument) noexcept {
    return segment_.for_each_extent(
        free_, [&](const Extent& all) { return free_.walk(all, visit, argument); });
  }

  bool trim(std::size_t) noexcept {
    const WithStash with{stashes_};
    const bool unmapped = segment_.unmap_free_regions(free_, with.stash());
    return free_.discard_pages(with.stash()) || unmapped;
  }

  // No other thread may be inside.
  bool is_valid() noexcept { return free_.is_valid(); }

  // No thread may be inside.
  void destroy() noexcept {
    stashes_.close();
    segment_.destroy(free_);
    stashes_.destroy();
    free_.pool().destroy();
  }

  // The heap has no lock of its own, but a source that is a break has one, and so do the thread
  // tables.
  void fork_prepare() noexcept {
    ThreadSlots::fork_prepare();
    segment_.fork_prepare();
  }
  void fork_parent() noexcept {
    segment_.fork_parent();
    ThreadSlots::fork_parent();
  }
  // The current version is valid at every moment. Nodes and blocks that other threads held are lost
  // only if these threads were in mid-call.
  void fork_child() noexcept {
    segment_.fork_child();
    stashes_.fork_child();
    ThreadSlots::fork_child();
  }

 private:
  using WithStash = NodeStashes::WithStash;

  const std::size_t trim_threshold_bytes_;
  LockFreeSegment<Fit> segment_;
  VersionedFreeBlocks<Fit> free_;
  NodeStashes stashes_;
};

}  // namespace ts::classic
