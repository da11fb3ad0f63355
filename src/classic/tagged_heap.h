// One heap over boundary tags: grow, find by the fit, split, merge, give back. The same code serves
// every strategy but the lock-free one. The strategy excludes concurrent calls, by a lock or by one
// heap per thread.
//
// Policy, exact: a request takes the free block that the fit names; its tail stays free if it can
// hold a block. A freed block merges at once with both free neighbours of the same owner. For an
// alignment above 16, the fit searches a block that holds an aligned payload at any address; its
// head and its tail stay free. The last free block of a chunk is like any other.
#pragma once

#include "base/event_counts.h"
#include "classic/fit.h"
#include "classic/request.h"
#include "classic/source.h"
#include "os/os.h"

namespace ts::classic {

// The ownership of a block's neighbours.
//
// Exclusive: all blocks of a chunk belong to one heap, and one thread at a time is in it.
struct Exclusive {
  static constexpr bool forgets = false;  // may a block have lost its `previous free`?
  static bool owns(Tag, std::uint32_t) noexcept { return true; }
  static void set_previous_free(Block* block, bool is, std::uint32_t) noexcept {
    const Tag tag = block->tag();
    block->set_tag(is ? tag.with(Tag::previous_free_flag) : tag.without(Tag::previous_free_flag));
  }
};

// Shared: the neighbour may belong to another heap, whose thread changes it at this moment. The
// argument that this is sound:
//
// - Only the owner of a free block changes its extent, and two blocks become one only when one heap
//   owns both. So while a heap owns a block and leaves it alone, the next block begins where it
//   ends.
// - `previous free` of a block is set only by the owner of both blocks. When another heap takes the
//   block over (by freeing it), it overwrites the whole tag. The owner's compare-and-swap below and
//   that store hit the same word. Either the swap came first and is overwritten, or it fails
//   because the owner has changed. The tag cannot come back to the expected value in between, since
//   only the thread that is executing the swap writes its own owner number.
// - Relaxed is enough: tags with its own owner number a heap wrote itself, or received through a
//   mutex with an adopted heap.
//
// The price: a block that changes hands loses its `previous free`; that pair merges when the
// earlier one is next freed.
struct Shared {
  static constexpr bool forgets = true;
  static bool owns(Tag tag, std::uint32_t owner) noexcept { return tag.owner() == owner; }
  static void set_previous_free(Block* block, bool is, std::uint32_t owner) noexcept {
    Tag tag = block->tag();
    while (owns(tag, owner) && tag.previous_free() != is) {
      if (block->replace_tag(
              tag, is ? tag.with(Tag::previous_free_flag) : tag.without(Tag::previous_free_flag)))
        return;
    }
  }
};

// A free block of so many bytes at the end of the segment is given back, all but trim_keep_bytes.
// (glibc's dynamic threshold ends at the same 32 MiB.) Between the two, frees and allocations cause
// no page faults. Free mappings are given back while so much is free in all: a block that realloc
// grows from mapping to mapping leaves none behind.
inline constexpr std::size_t default_trim_threshold_bytes = std::size_t{32} << 20;
inline constexpr std::size_t trim_keep_bytes = std::size_t{1} << 20;
inline constexpr std::size_t never_trim = SIZE_MAX;

template <FitPolicy Fit, class Sharing = Exclusive>
class TaggedHeap {
 public:
  constexpr TaggedHeap(Source& source, std::uint32_t owner,
                       std::size_t trim_threshold_bytes) noexcept
      : source_{source}, owner_{owner}, trim_threshold_bytes_{trim_threshold_bytes} {}

  void* allocate(const Request& request) noexcept {
    if (request.search_bytes == 0) return nullptr;
    void* payload = allocate_from_free(request);
    while (payload == nullptr && grow_or_make_room(request.search_bytes))
      payload = allocate_from_free(request);
    return payload;
  }

  // As allocate(), but null where the heap would have to grow.
  void* allocate_from_free(const Request& request) noexcept {
    Block* const block = find(request, unclaimed);
    return block == nullptr ? nullptr : take(block, request);
  }

  // The block that the fit names; only reads, unless `accept` writes.
  template <class Accept>
  Block* find(const Request& request, Accept accept) const noexcept {
    if constexpr (counting) count_event(Event::searches);
    return Fit::find(index_, request.search_bytes, accept);
  }

  // Hands out a block that find() named: cuts it to size and frees the rest.
  void* take(Block* block, const Request& request) noexcept {
    const Tag tag = block->tag();
    const std::size_t head_bytes = head_before_aligned(block->address(), request);
    const std::size_t tail_bytes = tag.block_bytes() - head_bytes - request.block_bytes;
    const bool keeps_tail = tail_bytes >= min_block_bytes;
    const Tag::Flags inherited = tag.flags(Tag::first_flag | Tag::previous_free_flag);
    Block* const taken = Block::at(block->begin() + head_bytes);
    if constexpr (counting)
      count_event(Event::splits, (head_bytes != 0 ? 1 : 0) + (keeps_tail ? 1 : 0));
    if (head_bytes == 0 && keeps_tail && shrinks_to_tail(block, tail_bytes)) {
      taken->set_tag(Tag{request.block_bytes, owner_, Tag::used_flag | inherited});
      return taken->payload();
    }
    index_.erase(block);
    const std::size_t taken_bytes = request.block_bytes + (keeps_tail ? 0 : tail_bytes);
    taken->set_tag(Tag{taken_bytes, owner_, Tag::used_flag | (head_bytes == 0 ? inherited : 0)});
    if (keeps_tail) {
      taken->next()->set_tag(Tag{tail_bytes, owner_, Tag::used_flag});
      add_free(taken->next());
    } else {
      Sharing::set_previous_free(taken->next(), false, owner_);
    }
    if (head_bytes != 0) {
      block->set_tag(Tag{head_bytes, owner_, Tag::used_flag | inherited});
      add_free(block);
    }
    validate_now_and_then();
    return taken->payload();
  }

  void release(void* payload) noexcept {
    Block* const block = Block::of_payload(payload);
    const Tag tag = block->tag();
    require(tag.used() && tag.block_bytes() >= min_block_bytes, not_in_use, payload);
    if (!Sharing::owns(tag, owner_))
      block->set_tag(Tag{tag.block_bytes(), owner_, tag.flags(Tag::used_flag | Tag::first_flag)});
    Block* const merged = add_free(block);
    if (merged->block_bytes() >= trim_threshold_bytes_ ||
        (index_.bytes() >= trim_threshold_bytes_ && is_whole_mapping(merged)))
      give_back_end(merged, trim_keep_bytes);
    validate_now_and_then();
  }

  // Makes a used block hold `bytes` where it is; false (and nothing changed) if it cannot.
  bool resize(void* payload, std::size_t bytes) noexcept {
    Block* const block = Block::of_payload(payload);
    const Tag tag = block->tag();
    const std::size_t wanted = block_bytes_for(bytes);
    if (wanted == 0) return false;
    if (!Sharing::owns(tag, owner_))
      return wanted <= tag.block_bytes();  // another heap's: not ours to cut
    if (wanted > tag.block_bytes()) {
      Block* const next = block->next();
      const std::size_t next_bytes = next->block_bytes();
      if (!is_free_and_mine(next) || tag.block_bytes() + next_bytes < wanted) return false;
      index_.erase(next);
      if constexpr (counting) count_event(Event::merges);
      block->set_tag(Tag{tag.block_bytes() + next_bytes, owner_, tag.flags(flags_mask)});
      Sharing::set_previous_free(block->next(), false, owner_);
    }
    cut_tail(block, wanted);
    validate_now_and_then();
    return true;
  }

  // Gives back memory at the end of the segment, free chunks, and the whole pages inside all free
  // blocks.
  bool trim(std::size_t keep_bytes) noexcept {
    bool gave = false;
    if (last_ != nullptr) {
      if (Block* top = free_before(last_->fence())) gave = give_back_end(top, keep_bytes);
    }
    gave = give_back_free_chunks() || gave;
    return discard_below(index_.root()) || gave;
  }

  // Grows by a block of `bytes`, free. Used by strategies that give a heap a fixed share;
  // allocate() grows by itself.
  bool grow(std::size_t bytes) noexcept {
    if (!may_grow_) return false;
    std::size_t more_bytes = bytes;
    if (last_ != nullptr) {
      const Block* top = free_before(last_->fence());
      if (top != nullptr && top->block_bytes() < bytes) more_bytes -= top->block_bytes();
    }
    const Source::Growth growth = source_.grow(more_bytes, bytes, last_);
    if (growth.chunk == nullptr) return false;
    add_memory(growth);
    return true;
  }

  // Frees every claimed block of the index: the threads that claimed them are gone.
  void free_claimed() noexcept {
    while (Block* claimed = claimed_below(index_.root())) {
      index_.erase(claimed);
      add_free(claimed);
    }
  }

  // Makes grow() fail.
  void forbid_growth() noexcept { may_grow_ = false; }

  std::uint32_t owner() const noexcept { return owner_; }

  // Adds free_bytes and free_blocks.
  void measure(HeapMeasures& measures) const noexcept {
    measures.free_bytes += index_.bytes();
    measures.free_blocks += index_.blocks();
  }

  // The index is valid, and every block in it is tagged as free and of this heap, with neighbours
  // that agree.
  bool is_valid() const noexcept {
    return index_.is_valid() && neighbours_agree_below(index_.root());
  }

 private:
  static constexpr Tag::Flags flags_mask =
      Tag::used_flag | Tag::previous_free_flag | Tag::first_flag;
  static constexpr unsigned operations_per_validation = debug_level >= 3 ? 1 : 4096;

  // Under a reader-writer lock, a block of the index may be claimed (read_write.h).
  static bool unclaimed(const Block* block) noexcept { return !block->tag().used(); }

  // The free block that ends where `block` begins, if this heap owns it. (A block claimed under a
  // shared lock is marked as used in its own tag, but free in the one behind it.)
  static Block* free_before(Block* block) noexcept {
    if (!block->tag().previous_free()) return nullptr;
    Block* const previous = block->previous();
    return previous->tag().used() ? nullptr : previous;
  }

  bool is_free_and_mine(const Block* block) const noexcept {
    const Tag tag = block->tag();
    return !tag.used() && Sharing::owns(tag, owner_);
  }

  // Leaves the last `tail_bytes` of a free block free in its place, if the tree keeps its order and
  // no merge is due.
  bool shrinks_to_tail(Block* block, std::size_t tail_bytes) noexcept {
    if constexpr (Fit::Order::by_address) {
      Block* const next = block->next();
      if (is_free_and_mine(next)) return false;
      Block* const tail = Block::at(next->begin() - tail_bytes);
      tail->set_tag(Tag{tail_bytes, owner_, 0});
      tail->write_footer();
      Sharing::set_previous_free(next, true, owner_);
      index_.replace(block, block->block_bytes(), tail);
      return true;
    } else {
      return false;
    }
  }

  // Puts a block of this heap, tagged as used, among the free ones, merged with its free
  // neighbours; returns the merged block.
  Block* add_free(Block* block) noexcept {
    Block* begin = block;
    std::size_t bytes = block->block_bytes();
    Block* const next = block->next();
    const std::size_t next_bytes = is_free_and_mine(next) ? next->block_bytes() : 0;
    if constexpr (counting) count_event(Event::merges, next_bytes != 0 ? 1 : 0);
    if (Block* previous = free_before(block)) {
      if constexpr (counting) count_event(Event::merges);
      index_.erase(previous);
      block->set_tag(block->tag().without(Tag::used_flag));  // so that a second free is noticed
      begin = previous;
      bytes += previous->block_bytes();
    }
    if (!Fit::Order::by_address && next_bytes != 0) index_.erase(next);
    begin->set_tag(Tag{bytes + next_bytes, owner_,
                       begin->tag().flags(Tag::first_flag | Tag::previous_free_flag)});
    begin->write_footer();
    Sharing::set_previous_free(begin->next(), true, owner_);
    if constexpr (Fit::Order::by_address) {
      if (next_bytes != 0) {
        index_.replace(next, next_bytes, begin);
        return begin;
      }
    }
    index_.insert(begin);
    return begin;
  }

  // Frees the bytes of a used block beyond `wanted`, if they can hold a block.
  void cut_tail(Block* block, std::size_t wanted) noexcept {
    const Tag tag = block->tag();
    const std::size_t tail_bytes = tag.block_bytes() - wanted;
    if (tail_bytes < min_block_bytes) return;
    if constexpr (counting) count_event(Event::splits);
    block->set_tag(Tag{wanted, owner_, tag.flags(flags_mask)});
    block->next()->set_tag(Tag{tail_bytes, owner_, Tag::used_flag});
    add_free(block->next());
  }

  // Tags new memory as one block, and frees that.
  void add_memory(const Source::Growth& growth) noexcept {
    Block* block = nullptr;
    if (growth.begin == growth.chunk->begin()) {
      block = growth.chunk->first_block();
      block->set_tag(Tag{growth.chunk->bytes() - Chunk::overhead_bytes, owner_,
                         Tag::used_flag | Tag::first_flag});
    } else {
      block = Block::at(growth.begin - tag_bytes);  // the fence becomes the tag of the new block
      const auto bytes = static_cast<std::size_t>(growth.end - growth.begin);
      block->set_tag(Tag{bytes, owner_, block->tag().flags(flags_mask)});
    }
    growth.chunk->fence()->set_tag(Tag{0, owner_, Tag::used_flag});
    last_ = growth.chunk;
    add_free(block);
  }

  bool is_whole_mapping(Block* block) const noexcept {
    return is_whole_chunk(block, owner_) && !Chunk::of_first_block(block)->from_break();
  }

  // Gives a free block at the end of its chunk back to the system, all but `keep_bytes`.
  bool give_back_end(Block* block, std::size_t keep_bytes) noexcept {
    Block* const fence = block->next();
    if (!fence->is_fence() || !Sharing::owns(fence->tag(), owner_)) return false;
    if (block->tag().first()) {
      Chunk* const chunk = Chunk::of_first_block(block);
      if (keep_bytes == 0 || !chunk->from_break()) return give_back_chunk(chunk);
    }
    if (last_ == nullptr || last_->fence() != fence) return false;
    const std::size_t bytes = block->block_bytes();
    if (bytes < keep_bytes + min_block_bytes) return false;
    const std::size_t surplus = align_down(bytes - keep_bytes - min_block_bytes, os::page_bytes());
    if (surplus == 0 || !source_.shrink(last_, surplus)) return false;
    resize_free(block, bytes - surplus);
    return true;
  }

  // If growth is refused, perhaps because of unused memory of this heap, gives that back and tries
  // again.
  bool grow_or_make_room(std::size_t bytes) noexcept {
    return grow(bytes) || (give_back_free_chunks() && grow(bytes));
  }

  // Gives every chunk back that is one free block, as far as the system takes it; true if any was
  // given back.
  bool give_back_free_chunks() noexcept {
    bool gave = false;
    for (;;) {
      FreeChunks found;
      collect_below(index_.root(), found);
      unsigned given = 0;
      for (unsigned i = 0; i < found.count; ++i)
        given += give_back_chunk(found.chunks[i]) ? 1U : 0U;
      if (given == 0) return gave;
      gave = true;
    }
  }

  static Block* claimed_below(Block* t) noexcept {
    if (t == nullptr || !unclaimed(t)) return t;
    Block* const found = claimed_below(Tree::left(t));
    return found != nullptr ? found : claimed_below(Tree::right(t));
  }

  // A handful at a time: the tree must not change while it is walked.
  struct FreeChunks {
    static constexpr unsigned capacity = 32;
    unsigned count = 0;
    Chunk* chunks[capacity];
  };
  static bool is_whole_chunk(Block* block, std::uint32_t owner) noexcept {
    const Block* const next = block->next();
    return block->tag().first() && !block->tag().used() && next->is_fence() &&
           Sharing::owns(next->tag(), owner);
  }
  void collect_below(Block* t, FreeChunks& found) const noexcept {
    if (t == nullptr || found.count == FreeChunks::capacity) return;
    if (is_whole_chunk(t, owner_)) found.chunks[found.count++] = Chunk::of_first_block(t);
    collect_below(Tree::left(t), found);
    collect_below(Tree::right(t), found);
  }

  bool give_back_chunk(Chunk* chunk) noexcept {
    index_.erase(chunk->first_block());
    Chunk* const last = last_;
    if (last_ == chunk) last_ = nullptr;
    if (source_.release(chunk)) return true;
    last_ = last;
    index_.insert(chunk->first_block());
    return false;
  }

  // The memory behind the first `bytes` of a free block at the end of last_ is gone: a new fence
  // stands there.
  void resize_free(Block* block, std::size_t bytes) noexcept {
    index_.erase(block);
    block->set_tag(
        Tag{bytes, owner_, block->tag().flags(Tag::first_flag | Tag::previous_free_flag)});
    block->write_footer();
    block->next()->set_tag(Tag{0, owner_, Tag::used_flag | Tag::previous_free_flag});
    index_.insert(block);
  }

  // Discards the whole pages of the free blocks below `t`, links and footers excepted.
  static bool discard_below(Block* t) noexcept {
    if (t == nullptr) return false;
    bool gave = discard_below(Tree::left(t));
    gave = discard_below(Tree::right(t)) || gave;
    const std::size_t page_bytes = os::page_bytes();
    const std::uintptr_t begin = align_up(t->address() + min_block_bytes, page_bytes);
    const std::uintptr_t end = align_down(t->address() + t->block_bytes() - tag_bytes, page_bytes);
    if (end <= begin) return gave;
    os::discard(reinterpret_cast<void*>(begin), end - begin);
    if constexpr (counting) count_event(Event::purge_calls);
    if constexpr (counting) count_event(Event::purged_bytes, end - begin);
    return true;
  }

  bool neighbours_agree_below(Block* t) const noexcept {
    if (t == nullptr) return true;
    const Tag tag = t->tag();
    const Tag next_tag = t->next()->tag();
    const bool mine = tag.owner() == owner_;
    const bool footer = next_tag.previous_free()
                            ? !Sharing::owns(next_tag, owner_) || t->next()->previous() == t
                            : Sharing::forgets;
    return mine && footer && neighbours_agree_below(Tree::left(t)) &&
           neighbours_agree_below(Tree::right(t));
  }

  void validate_now_and_then() noexcept {
    if constexpr (debug_level >= 2) {
      if (++operations_ % operations_per_validation == 0)
        require(is_valid(), "heap corrupted", this);
    }
  }

  using Tree = FreeTree<typename Fit::Order>;

  Source& source_;
  std::uint32_t owner_;  // const
  bool may_grow_ = true;
  std::size_t trim_threshold_bytes_;  // const
  Tree index_;
  Chunk* last_ = nullptr;  // the newest chunk of this heap: the one that can grow in place
  unsigned operations_ = 0;
};

}  // namespace ts::classic
