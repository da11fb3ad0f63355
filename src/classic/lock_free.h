// Strategy `lockfree`: malloc and free take no lock (report B's proposed successor to its mutex).
// The set of free blocks is an immutable tree (version_tree.h), and one atomic word names the
// current version of it. An operation reads the word, builds the next version beside the current
// one, and swaps the word; if another swap came first, it starts again. Splitting and merging are
// part of the version, so the fit and the merging are exact at every moment, and nothing is
// deferred.
//
//   root_:  [ version, 36 bits ][ node number, 28 bits ]
//   first, worst fit: the node is the root of a tree by address, for the search and the merging
//   best fit: the node is a pair, left a tree by address, right a tree by size
//
// Progress: lock-free. An attempt fails only if another one has succeeded since it began, so some
// thread always progresses. A single thread may start again without bound. Growth asks the kernel
// for memory, which has locks of its own. A break (sbrk or a caller's buffer) can only be moved
// under a lock, so the drop-in libraries grow by mmap.
//
// Why an attempt that succeeds has read the current version: the swap expects the word that was
// read at the beginning. Versions are numbered, so a word that is still equal has been there all
// the time, and nodes of the current version are never written. If a node that it read was reused
// meanwhile, another swap of the word came first, and this one fails. The order of the relaxed
// reads does not matter, since a read-modify-write always sees the latest value. ABA needs a thread
// that sleeps for exactly a multiple of 2^36 operations (hours at full speed), and the same node
// number in the root. An attempt that changes nothing (no block is large enough) compares the word
// once more.
//
// The tag of a block in use holds its size, as in the other strategies; only the tree describes
// free blocks. Memory leaves a thread by the swap (release) and reaches the next owner by the read
// of the word (acquire).
#pragma once

#include <new>

#include "base/busy_mark.h"
#include "base/event_counts.h"
#include "classic/config.h"
#include "classic/mapped_regions.h"
#include "classic/thread_slots.h"
#include "classic/version_tree.h"

namespace ts::classic {

template <FitPolicy Fit>
class LockFree : public TaggedPayloads {
 public:
  constexpr explicit LockFree(const HeapConfig& config = by_mmap) noexcept
      : config_{config}, source_{config.source}, slots_{this, retire} {}

  void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    const Request request = Request::of(bytes, alignment);
    if (request.search_bytes == 0) return nullptr;
    const WithStash with{*this};
    release_pending(with.stash());
    for (;;) {
      Extent found{};
      const Attempt result =
          publish(with.stash(), [&](VersionBuilder& builder, const Trees& trees) {
            if constexpr (counting) count_event(Event::searches);
            found = find(builder, trees, request.search_bytes);
            return found.bytes == 0 ? trees : cut(builder, trees, found, request);
          });
      if (result == Attempt::no_memory) return nullptr;
      if (result == Attempt::published) return hand_out(found, request);
      if (!grow(with.stash(), request.search_bytes)) return nullptr;
    }
  }

  void release(void* payload) noexcept {
    Block* const block = Block::of_payload(payload);
    const Tag tag = block->tag();
    require(tag.used() && tag.block_bytes() >= min_block_bytes, not_in_use, payload);
    block->set_tag(tag.without(Tag::used_flag));
    const WithStash with{*this};
    release_pending(with.stash());
    const Extent free = release_extent(with.stash(), {block->address(), tag.block_bytes()});
    if (free_bytes_.load(std::memory_order_relaxed) >= config_.trim_threshold_bytes)
      unmap_if_region(with.stash(), free);
  }

  bool resize(void* payload, std::size_t bytes) noexcept {
    Block* const block = Block::of_payload(payload);
    const std::size_t have = block->block_bytes();
    const std::size_t wanted = block_bytes_for(bytes);
    if (wanted == 0) return false;
    const WithStash with{*this};
    std::size_t holds = have;
    bool kept_rest = false;
    if (wanted > have) {
      const Attempt result = publish(with.stash(), [&](VersionBuilder& builder,
                                                       const Trees& trees) {
        const Extent next = builder.neighbours(trees.by_address, block->address()).after;
        if (next.bytes == 0 || next.address != block->address() + have ||
            have + next.bytes < wanted)
          return trees;
        const std::size_t rest = have + next.bytes - wanted;
        kept_rest = rest >= min_block_bytes;
        holds = kept_rest ? wanted : have + next.bytes;
        const Trees without = erase(builder, trees, next);
        return kept_rest ? insert(builder, without, {block->address() + wanted, rest}) : without;
      });
      if (result != Attempt::published) return false;
      count_free(-static_cast<std::ptrdiff_t>(holds - have), kept_rest ? 0 : -1);
      if constexpr (counting) count_event(Event::merges);
      if constexpr (counting) count_event(Event::splits, kept_rest ? 1 : 0);
    } else if (have - wanted >= min_block_bytes) {
      holds = wanted;
    }
    block->set_tag(Tag{holds, 0, Tag::used_flag});
    if (holds < have) {
      if constexpr (counting) count_event(Event::splits);
      release_extent(with.stash(), {block->address() + holds, have - holds});
    }
    return true;
  }

  HeapMeasures measures() noexcept {
    HeapMeasures measures{.heaps = 1};
    source_.measure(measures);
    measures.segment_bytes += regions_.bytes();
    measures.grow_calls += regions_.maps();
    regions_.for_each(pool_, [&](const MappedRegions::Region&) {
      ++measures.chunks;
      return true;
    });
    measures.free_bytes = free_bytes_.load(std::memory_order_relaxed);
    measures.free_blocks = free_blocks_.load(std::memory_order_relaxed);
    measures.cached_bytes = waiting_bytes_.load(std::memory_order_relaxed);
    return measures.bounded();
  }

  // No other thread may be inside.
  bool walk(BlockVisitor visit, void* argument) noexcept {
    return source_.for_each_chunk([&](Chunk& chunk) {
      return walk_between(chunk.first_block(), chunk.fence(), visit, argument);
    }) && regions_.for_each(pool_, [&](const MappedRegions::Region& region) {
      const Extent all = extent_of(region);
      return walk_between(block_at(all.address), block_at(all.end()), visit, argument);
    });
  }

  // Takes free blocks of several pages out, largest first, discards their pages, and puts them
  // back: no lock, and no thread waits.
  bool trim(std::size_t) noexcept {
    const WithStash with{*this};
    const bool unmapped = unmap_free_regions(with.stash());
    Block* taken = nullptr;
    for (;;) {
      Extent found{};
      const Attempt result =
          publish(with.stash(), [&](VersionBuilder& builder, const Trees& trees) {
            const std::size_t most = builder.largest(trees.by_address);
            found =
                builder.lowest(trees.by_address, most > trim_block_bytes ? most : trim_block_bytes);
            return found.bytes == 0 ? trees : erase(builder, trees, found);
          });
      if (result != Attempt::published) break;
      waiting_bytes_.fetch_add(found.bytes, std::memory_order_relaxed);
      Block* const block = block_at(found.address);
      block->set_tag(Tag{found.bytes, 0, 0});
      block->link_word(0) = address_of(taken);
      taken = block;
      const std::uintptr_t begin = align_up(found.address + min_block_bytes, os::page_bytes());
      const std::uintptr_t end = align_down(found.end(), os::page_bytes());
      os::discard(reinterpret_cast<void*>(begin), end - begin);
      if constexpr (counting) count_event(Event::purge_calls);
      if constexpr (counting) count_event(Event::purged_bytes, end - begin);
    }
    const bool gave = unmapped || taken != nullptr;
    release_list(with.stash(), taken);
    return gave;
  }

  // No other thread may be inside.
  bool is_valid() noexcept {
    const Trees trees = trees_of(root_.load(std::memory_order_acquire));
    Totals by_address{};
    if (!is_valid_below<ByAddress>(trees.by_address, nullptr, nullptr, by_address)) return false;
    Totals waiting{};
    for (const Block* block = pending_.load(std::memory_order_acquire); block != nullptr;
         block = next_of(block)) {
      ++waiting.blocks;
      waiting.bytes += block->block_bytes();
    }
    if (waiting.bytes != waiting_bytes_.load(std::memory_order_relaxed) ||
        by_address.bytes + waiting.bytes != free_bytes_.load(std::memory_order_relaxed) ||
        by_address.blocks + waiting.blocks != free_blocks_.load(std::memory_order_relaxed))
      return false;
    if constexpr (!by_size_too) return true;
    Totals by_size{};
    return is_valid_below<BySize>(trees.by_size, nullptr, nullptr, by_size) &&
           by_size.bytes == by_address.bytes && by_size.blocks == by_address.blocks;
  }

  void destroy() noexcept {
    slots_.close();
    source_.release_all();
    regions_.for_each(pool_, [](const MappedRegions::Region& region) {
      return os::unmap(region.begin, region.bytes);
    });
    for (ThreadState* state = all_.load(std::memory_order_acquire); state != nullptr;) {
      ThreadState* const next = state->next;
      os::unmap(state, ThreadState::mapped_bytes());
      state = next;
    }
    pool_.destroy();
  }

  // There is no lock of the heap's own; the source has one if it is a break, and so have the thread
  // tables.
  void fork_prepare() noexcept {
    ThreadSlots::fork_prepare();
    source_.fork_prepare();
  }
  void fork_parent() noexcept {
    source_.fork_parent();
    ThreadSlots::fork_parent();
  }
  // The current version is sound at every moment. Nodes and blocks that other threads held are lost
  // only if those were in mid-call.
  void fork_child() noexcept {
    source_.fork_child();
    const void* const mine = slots_.get();
    for (ThreadState* state = all_.load(std::memory_order_acquire); state != nullptr;
         state = state->next) {
      if (state == mine) continue;
      if (state->busy.load(std::memory_order_relaxed)) state->stash = {};
      state->busy.store(false, std::memory_order_relaxed);
      pool_.share_all(state->stash);
      state->in_use.store(false, std::memory_order_relaxed);
    }
    ThreadSlots::fork_child();
  }

 private:
  static constexpr bool by_size_too = std::is_same_v<Fit, BestFit>;
  static constexpr std::size_t trim_block_bytes =
      std::size_t{64} << 10;  // smaller blocks are not worth a system call each
  // Two paths of a tree, as deep as that of a million blocks.
  static constexpr unsigned nodes_per_release = 128;
  static constexpr std::uint64_t node_mask = (std::uint64_t{1} << node_number_bits) - 1;

  struct Trees {
    NodeNumber by_address;
    NodeNumber by_size;  // 0 unless by_size_too
    bool operator==(const Trees&) const = default;
  };

  // The free nodes of one thread. States are never unmapped while the heap exists, and are reused
  // by later threads.
  struct ThreadState {
    static std::size_t mapped_bytes() noexcept {
      return align_up(sizeof(ThreadState), os::page_bytes());
    }

    NodePool::Stash stash;           // own
    std::atomic<bool> busy{false};   // own; read in the child of a fork
    std::atomic<bool> in_use{true};  // any: claimed by exchange, so one thread has it
    ThreadState* next = nullptr;     // const after it was pushed
  };

  // The stash to work with: the thread's own, or an empty one for the length of this call.
  class WithStash {
   public:
    explicit WithStash(LockFree& heap) noexcept
        : heap_{heap},
          state_{heap.this_thread()},
          mark_{state_ != nullptr ? state_->busy : never_read_} {}
    ~WithStash() {
      if (state_ == nullptr) {
        heap_.pool_.share_all(temporary_);
      } else {
        heap_.pool_.balance(state_->stash);
      }
    }
    WithStash(const WithStash&) = delete;
    WithStash& operator=(const WithStash&) = delete;
    NodePool::Stash& stash() const noexcept {
      return state_ != nullptr ? state_->stash : temporary_;
    }

   private:
    LockFree& heap_;
    ThreadState* state_;
    std::atomic<bool> never_read_{false};
    BusyMark mark_;
    mutable NodePool::Stash temporary_{};
  };

  enum class Attempt : std::uint8_t {
    published,  // the version that `edit` built is the current one
    unchanged,  // `edit` changed nothing, and the version that it saw was current
    no_memory,  // no node to be had; nothing changed
  };

  // Builds the next version by edit(builder, trees) -> trees, until one is published or nothing is
  // to be changed.
  template <class Edit>
  Attempt publish(NodePool::Stash& stash, Edit edit) noexcept {
    for (;; count_retry()) {
      // acquire: pairs with the release of the swap that published this version; sees its nodes and
      // the memory of its blocks
      std::uint64_t root = root_.load(std::memory_order_acquire);
      const Trees trees = trees_of(root);
      VersionBuilder builder{pool_, stash, &root_, root};
      const Trees next = edit(builder, trees);
      if (builder.state() == VersionBuilder::State::sound && next != trees) {
        const NodeNumber node = node_of(builder, root, next);
        if (builder.state() == VersionBuilder::State::sound &&
            root_.compare_exchange_strong(root, next_root(root, node), std::memory_order_acq_rel,
                                          std::memory_order_relaxed)) {
          builder.succeeded();
          return Attempt::published;
        }
      }
      builder.failed();
      std::atomic_thread_fence(std::memory_order_acquire);  // keeps the reads of nodes before the
                                                            // second look at the root
      if (root_.load(std::memory_order_relaxed) != root) continue;
      if (builder.state() == VersionBuilder::State::no_memory) return Attempt::no_memory;
      if (builder.state() == VersionBuilder::State::sound && next == trees)
        return Attempt::unchanged;
      require(builder.state() != VersionBuilder::State::torn, "the tree of free blocks is damaged",
              this);
    }
  }

  static void count_retry() noexcept {
    if constexpr (counting) count_event(Event::retries);
  }

  static std::uint64_t next_root(std::uint64_t root, NodeNumber node) noexcept {
    return ((root >> node_number_bits) + 1) << node_number_bits | node;
  }

  Trees trees_of(std::uint64_t root) const noexcept {
    const auto node = static_cast<NodeNumber>(root & node_mask);
    if constexpr (by_size_too) {
      if (node == 0) return {0, 0};
      return {pool_.at(node).left.load(std::memory_order_relaxed),
              pool_.at(node).right.load(std::memory_order_relaxed)};
    }
    return {node, 0};
  }

  static NodeNumber node_of(VersionBuilder& builder, std::uint64_t root,
                            const Trees& trees) noexcept {
    if constexpr (!by_size_too) return trees.by_address;
    if (const auto old_pair = static_cast<NodeNumber>(root & node_mask)) builder.discard(old_pair);
    return trees.by_address == 0 ? 0
                                 : builder.make<BySize>({0, 0}, trees.by_address, trees.by_size);
  }

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

  // A block in the place of one that ends at the same address, with nothing free between their
  // beginnings.
  static Trees replace(VersionBuilder& builder, const Trees& trees, const Extent& block,
                       const Extent& fresh) noexcept {
    NodeNumber by_size = 0;
    if constexpr (by_size_too)
      by_size = builder.insert<BySize>(builder.erase<BySize>(trees.by_size, block), fresh);
    return {builder.replace(trees.by_address, block, fresh), by_size};
  }

  // How a found block is divided: free head (for alignment), the block handed out, free tail.
  struct Division {
    Extent head;
    Extent taken;
    Extent tail;
  };
  static Division divide(const Extent& found, const Request& request) noexcept {
    const std::size_t head_bytes = head_before_aligned(found.address, request);
    const std::size_t tail_bytes = found.bytes - head_bytes - request.block_bytes;
    const std::size_t kept_tail = tail_bytes >= min_block_bytes ? tail_bytes : 0;
    const std::size_t taken_bytes = found.bytes - head_bytes - kept_tail;
    return {{found.address, head_bytes},
            {found.address + head_bytes, taken_bytes},
            {found.end() - kept_tail, kept_tail}};
  }

  static Trees cut(VersionBuilder& builder, Trees trees, const Extent& found,
                   const Request& request) noexcept {
    const Division division = divide(found, request);
    trees = division.tail.bytes != 0 ? replace(builder, trees, found, division.tail)
                                     : erase(builder, trees, found);
    return division.head.bytes != 0 ? insert(builder, trees, division.head) : trees;
  }

  // Counts and tags a block that this thread has taken.
  void* hand_out(const Extent& found, const Request& request) noexcept {
    const Division division = divide(found, request);
    const std::ptrdiff_t kept =
        (division.head.bytes != 0 ? 1 : 0) + (division.tail.bytes != 0 ? 1 : 0);
    count_free(-static_cast<std::ptrdiff_t>(division.taken.bytes), kept - 1);
    if constexpr (counting) count_event(Event::splits, static_cast<std::uint64_t>(kept));
    Block* const block = block_at(division.taken.address);
    block->set_tag(Tag{division.taken.bytes, 0, Tag::used_flag});
    return block->payload();
  }

  // Puts memory of the caller among the free blocks, and returns it, merged with its neighbours.
  // {0, 0} if there is no memory for nodes.
  Extent try_release(NodePool::Stash& stash, const Extent& extent) noexcept {
    Extent block{};
    std::ptrdiff_t merged = 0;  // neighbours that became one block with it
    const Attempt result = publish(stash, [&](VersionBuilder& builder, const Trees& trees) {
      const VersionBuilder::Neighbours near = builder.neighbours(trees.by_address, extent.address);
      Trees next = trees;
      block = extent;
      merged = 0;
      if (near.before.bytes != 0 && near.before.end() == extent.address) {
        next = erase(builder, next, near.before);
        block = {near.before.address, near.before.bytes + block.bytes};
        ++merged;
      }
      if (near.after.bytes != 0 && near.after.address == extent.end()) {
        ++merged;
        block.bytes += near.after.bytes;
        return replace(builder, next, near.after, block);
      }
      return insert(builder, next, block);
    });
    if (result != Attempt::published) return {};
    count_free(static_cast<std::ptrdiff_t>(extent.bytes), 1 - merged);
    if constexpr (counting) count_event(Event::merges, static_cast<std::uint64_t>(merged));
    return block;
  }

  // As try_release(); memory without nodes for it waits.
  Extent release_extent(NodePool::Stash& stash, const Extent& extent) noexcept {
    const Extent free = try_release(stash, extent);
    if (free.bytes != 0) return free;
    Block* const block = block_at(extent.address);
    block->set_tag(Tag{extent.bytes, 0, 0});
    count_waiting(static_cast<std::ptrdiff_t>(extent.bytes), 1);
    wait_for_nodes(block, block);
    return {};
  }

  // Puts a chain of the caller's blocks, tagged with their sizes, aside until there are nodes.
  void wait_for_nodes(Block* first, Block* last) noexcept {
    Block* head = pending_.load(std::memory_order_relaxed);
    // release: the thread that takes the list (acquire) may write the blocks. Push one chain and
    // take all, so no ABA.
    do {
      last->link_word(0) = address_of(head);
    } while (!pending_.compare_exchange_weak(head, first, std::memory_order_release,
                                             std::memory_order_relaxed));
  }

  static Block* next_of(const Block* block) noexcept {
    return reinterpret_cast<Block*>(block->link_word(0));
  }

  // Frees a chain of the caller's blocks; when nodes run out, the rest waits.
  void release_list(NodePool::Stash& stash, Block* list) noexcept {
    while (list != nullptr) {
      Block* const next = next_of(list);
      const Extent extent{list->address(), list->block_bytes()};
      if (try_release(stash, extent).bytes == 0) break;
      count_waiting(-static_cast<std::ptrdiff_t>(extent.bytes), -1);
      list = next;
    }
    if (list == nullptr) return;
    Block* last = list;
    while (Block* next = next_of(last)) last = next;
    wait_for_nodes(list, last);
  }

  // Only when there are nodes: a vain walk of the list would make each call linear.
  void release_pending(NodePool::Stash& stash) noexcept {
    if (pending_.load(std::memory_order_relaxed) == nullptr) [[likely]]
      return;
    if (pool_.reserve(stash, nodes_per_release))
      release_list(stash, pending_.exchange(nullptr, std::memory_order_acquire));
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

  bool grow(NodePool::Stash& stash, std::size_t block_bytes) noexcept {
    // Without nodes, more memory would only join the waiting blocks.
    if (pending_.load(std::memory_order_relaxed) != nullptr) return false;
    if (config_.source.kind == SourceKind::mmap) return grow_mapping(stash, block_bytes);
    const Source::Growth growth = source_.grow(block_bytes, block_bytes, nullptr);
    if (growth.chunk == nullptr) return false;
    growth.chunk->fence()->set_tag(Tag{0, 0, Tag::used_flag});
    release_extent(stash, {growth.chunk->first_block()->address(),
                           growth.chunk->bytes() - Chunk::overhead_bytes});
    return true;
  }

  // When the system refuses, perhaps because of unused memory of this heap, gives that back and
  // tries again.
  bool grow_mapping(NodePool::Stash& stash, std::size_t block_bytes) noexcept {
    const std::size_t needed = block_bytes + Chunk::overhead_bytes;
    const std::size_t least = config_.source.growth_bytes;
    const std::size_t bytes = align_up(needed > least ? needed : least, os::page_bytes());
    MappedRegions::Region region = regions_.map(pool_, stash, bytes);
    if (region.begin == nullptr && unmap_free_regions(stash))
      region = regions_.map(pool_, stash, bytes);
    if (region.begin == nullptr) return false;
    release_extent(stash, extent_of(region));
    return true;
  }

  // The largest block of a region: as much as a chunk of the same size holds (source.h). The unused
  // bytes at either end put blocks at 8 mod 16, and keep those of neighbouring regions apart.
  static Extent extent_of(const MappedRegions::Region& region) noexcept {
    return {address_of(region.begin) + sizeof(Chunk), region.bytes - Chunk::overhead_bytes};
  }

  static MappedRegions::Region region_of(const Extent& all) noexcept {
    return {reinterpret_cast<std::byte*>(all.address - sizeof(Chunk)),
            all.bytes + Chunk::overhead_bytes};
  }

  bool unmap_free_regions(NodePool::Stash& stash) noexcept {
    bool unmapped = false;
    regions_.for_each(pool_, [&](const MappedRegions::Region& region) {
      unmapped = unmap_if_free(stash, region) || unmapped;
      return true;
    });
    return unmapped;
  }

  bool unmap_if_free(NodePool::Stash& stash, const MappedRegions::Region& region) noexcept {
    const Extent all = extent_of(region);
    const Attempt result = publish(stash, [&](VersionBuilder& builder, const Trees& trees) {
      const bool is_free = builder.neighbours(trees.by_address, all.address).after == all;
      return is_free ? erase(builder, trees, all) : trees;
    });
    if (result != Attempt::published) return false;
    count_free(-static_cast<std::ptrdiff_t>(all.bytes), -1);
    if (regions_.unmap(pool_, region)) return true;
    release_extent(stash, all);
    return false;
  }

  // Unmaps a free block, if it is still free and fills its region: with so much free, an empty
  // region is not kept. A block within a region, or of a break, hardly ever begins and ends as a
  // region does; the list of regions decides.
  void unmap_if_region(NodePool::Stash& stash, const Extent& block) noexcept {
    const MappedRegions::Region region = region_of(block);
    const std::size_t page = os::page_bytes();
    const bool is_likely = address_of(region.begin) % page == 0 && region.bytes % page == 0;
    if (block.bytes != 0 && is_likely && regions_.has(pool_, region)) unmap_if_free(stash, region);
  }

  static Block* block_at(std::uintptr_t address) noexcept {
    return Block::at(reinterpret_cast<std::byte*>(address));
  }

  bool walk_between(Block* block, const Block* end, BlockVisitor visit, void* argument) noexcept {
    NodePool::Stash none{};
    const NodeNumber tree = trees_of(root_.load(std::memory_order_acquire)).by_address;
    while (block != end) {
      VersionBuilder reader{pool_, none};
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

  ThreadState* this_thread() noexcept {
    void* const mine = slots_.get();
    return mine != nullptr ? static_cast<ThreadState*>(mine) : attach_slow();
  }

  [[gnu::noinline]] ThreadState* attach_slow() noexcept {
    if (!slots_.make_ready()) return nullptr;
    if (void* mine = slots_.get()) return static_cast<ThreadState*>(mine);
    ThreadState* const state = idle_or_new();
    if (state != nullptr) slots_.set(state);
    return state;
  }

  ThreadState* idle_or_new() noexcept {
    for (ThreadState* state = all_.load(std::memory_order_acquire); state != nullptr;
         state = state->next) {
      // acquire: pairs with the release in retire(); sees the stash that the last thread left
      if (!state->in_use.load(std::memory_order_relaxed) &&
          !state->in_use.exchange(true, std::memory_order_acquire))
        return state;
    }
    void* const memory = os::map(ThreadState::mapped_bytes());
    if (memory == nullptr) return nullptr;
    auto* const state = new (memory) ThreadState{};
    state->next = all_.load(std::memory_order_relaxed);
    while (!all_.compare_exchange_weak(state->next, state, std::memory_order_release,
                                       std::memory_order_relaxed)) {
    }
    return state;
  }

  static void retire(void* self, void* thread_state) noexcept {
    auto* const heap = static_cast<LockFree*>(self);
    auto* const state = static_cast<ThreadState*>(thread_state);
    heap->pool_.share_all(state->stash);
    state->in_use.store(false, std::memory_order_release);
  }

  struct Totals {
    std::size_t blocks;
    std::size_t bytes;
  };
  template <class Order>
  bool is_valid_below(NodeNumber t, const Extent* after, const Extent* before,
                      Totals& totals) noexcept {
    if (t == 0) return true;
    NodePool::Stash none{};
    VersionBuilder reader{pool_, none};
    const Extent here = reader.extent(t);
    ++totals.blocks;
    totals.bytes += here.bytes;
    if ((after != nullptr && !Order::before(*after, here)) ||
        (before != nullptr && !Order::before(here, *before)))
      return false;
    std::size_t most = here.bytes;
    for (const NodeNumber child : {reader.left(t), reader.right(t)})
      most = reader.largest(child) > most ? reader.largest(child) : most;
    return (!Order::augmented || reader.largest(t) == most) &&
           is_valid_below<Order>(reader.left(t), after, &here, totals) &&
           is_valid_below<Order>(reader.right(t), &here, before, totals);
  }

  const HeapConfig config_;
  Source source_;  // for a break; mappings are regions_
  MappedRegions regions_;
  ThreadSlots slots_;
  NodePool pool_;
  std::atomic<std::uint64_t> root_{0};
  std::atomic<Block*> pending_{nullptr};    // freed when there was no memory for nodes
  std::atomic<ThreadState*> all_{nullptr};  // push only
  std::atomic<std::size_t> free_bytes_{0};  // statistics
  std::atomic<std::size_t> free_blocks_{0};
  std::atomic<std::size_t> waiting_bytes_{0};  // of free_bytes_, in pending_
};

}  // namespace ts::classic
