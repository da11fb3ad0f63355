// The free blocks of one heap over boundary tags: the index of a fit, and how blocks are split and
// merged.
//
// Policy, exact: a request takes the free block that the fit chooses; its tail stays free if it can
// hold a block. A freed block merges at once with both free neighbours of the same owner. For an
// alignment above 16, the fit searches for a block that can hold an aligned payload at any address;
// its head and its tail stay free. The last free block of a chunk is like any other.
//
// Invariant at rest: each block of the index is tagged as free (or claimed, read_write.h) and with
// the heap's number, and its footer holds its size. The block after it says `previous free`, unless
// it has changed hands (sharing.h). No two of them are neighbours, with the same exception.
#pragma once

#include "base/event_counts.h"
#include "classic/claimed_pages.h"
#include "classic/fit.h"
#include "classic/request.h"
#include "classic/sharing.h"

namespace ts::classic {

template <FitPolicy Fit, class Sharing>
class FreeBlocks {
 public:
  using Tree = FreeTree<typename Fit::Order>;

  constexpr explicit FreeBlocks(std::uint32_t owner) noexcept : owner_{owner} {}

  // Under a reader-writer lock, a block of the index may be claimed (read_write.h).
  static bool unclaimed(const Block* block) noexcept { return !block->tag().used(); }

  // Finds the block for a request by the fit; only reads, unless `accept` writes.
  template <class Accept>
  Block* find(const Request& request, Accept accept) const noexcept {
    if constexpr (counting) count_event(Event::searches);
    return Fit::find(index_, request.search_bytes, accept);
  }

  // Takes a block that find() returned: cuts it to size and keeps the rest.
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
      add(taken->next());
    } else {
      Sharing::set_previous_free(taken->next(), false, owner_);
    }
    if (head_bytes != 0) {
      block->set_tag(Tag{head_bytes, owner_, Tag::used_flag | inherited});
      add(block);
    }
    return taken->payload();
  }

  // Adds a block of this heap, tagged as used, to the free ones, merged with its free neighbours;
  // returns the merged block.
  Block* add(Block* block) noexcept {
    Block* begin = block;
    std::size_t bytes = block->block_bytes();
    Block* const next = block->next();
    const std::size_t next_bytes = is_free_and_mine(next) ? next->block_bytes() : 0;
    if constexpr (counting) count_event(Event::merges, next_bytes != 0 ? 1 : 0);
    if (Block* previous = before(block)) {
      if constexpr (counting) count_event(Event::merges);
      index_.erase(previous);
      block->set_tag(block->tag().without(Tag::used_flag));  // so that a second free is detected
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

  // Merges the free block after a used one into it, if both together hold `wanted`.
  bool merge_into_used(Block* block, std::size_t wanted) noexcept {
    const Tag tag = block->tag();
    Block* const next = block->next();
    const std::size_t next_bytes = next->block_bytes();
    if (!is_free_and_mine(next) || tag.block_bytes() + next_bytes < wanted) return false;
    index_.erase(next);
    if constexpr (counting) count_event(Event::merges);
    block->set_tag(Tag{tag.block_bytes() + next_bytes, owner_, tag.flags(Tag::place_flags)});
    Sharing::set_previous_free(block->next(), false, owner_);
    return true;
  }

  // Frees the bytes of a used block beyond `wanted`, if they can hold a block.
  void cut_tail(Block* block, std::size_t wanted) noexcept {
    const Tag tag = block->tag();
    const std::size_t tail_bytes = tag.block_bytes() - wanted;
    if (tail_bytes < min_block_bytes) return;
    if constexpr (counting) count_event(Event::splits);
    block->set_tag(Tag{wanted, owner_, tag.flags(Tag::place_flags)});
    block->next()->set_tag(Tag{tail_bytes, owner_, Tag::used_flag});
    add(block->next());
  }

  // The free block that ends where `block` begins, if this heap owns it. (A block claimed under a
  // shared lock is marked as used in its own tag, but as free in the tag after it.)
  static Block* before(Block* block) noexcept {
    if (!block->tag().previous_free()) return nullptr;
    Block* const previous = block->previous();
    return previous->tag().used() ? nullptr : previous;
  }

  // Removes a chunk's only block from the index, and adds it again; its tags stay.
  void erase(Block* block) noexcept { index_.erase(block); }
  void insert(Block* block) noexcept { index_.insert(block); }

  // The memory after the first `bytes` of the free block at the end of a chunk is gone: writes a
  // new fence there.
  void shorten_last(Block* block, std::size_t bytes) noexcept {
    index_.erase(block);
    block->set_tag(
        Tag{bytes, owner_, block->tag().flags(Tag::first_flag | Tag::previous_free_flag)});
    block->write_footer();
    block->next()->set_tag(Tag{0, owner_, Tag::used_flag | Tag::previous_free_flag});
    index_.insert(block);
  }

  // Claims every free block that has whole pages between its links and its footer, for a thread
  // that discards these without a lock (claimed_pages.h). The blocks stay in the index.
  ClaimedPages claim_pages() noexcept {
    ClaimedPages claimed;
    claim_pages_below(index_.root(), claimed);
    return claimed;
  }

  // Frees them again. Blocks freed next to them in the meantime did not merge with them.
  void free_pages(ClaimedPages claimed) noexcept {
    while (Block* const block = claimed.pop()) {
      if (before(block) == nullptr && !is_free_and_mine(block->next())) {
        block->set_tag(block->tag().without(Tag::used_flag));
      } else {
        index_.erase(block);
        add(block);
      }
    }
  }

  // Frees every claimed block of the index: the threads that claimed them are gone.
  void free_claimed() noexcept {
    while (Block* claimed = claimed_below(index_.root())) {
      index_.erase(claimed);
      add(claimed);
    }
  }

  std::uint32_t owner() const noexcept { return owner_; }
  std::size_t bytes() const noexcept { return index_.bytes(); }
  std::size_t blocks() const noexcept { return index_.blocks(); }
  Block* root() const noexcept { return index_.root(); }

  bool is_valid() const noexcept {
    return index_.is_valid() && neighbours_agree_below(index_.root());
  }

 private:
  bool is_free_and_mine(const Block* block) const noexcept {
    const Tag tag = block->tag();
    return !tag.used() && Sharing::owns(tag, owner_);
  }

  // Keeps the last `tail_bytes` of a free block as a free block in its place in the tree, if the
  // order allows it and no merge is due.
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

  static void claim_pages_below(Block* t, ClaimedPages& claimed) noexcept {
    if (t == nullptr) return;
    claim_pages_below(Tree::left(t), claimed);
    claim_pages_below(Tree::right(t), claimed);
    if (!unclaimed(t) || !ClaimedPages::has_pages(t)) return;
    t->set_tag(t->tag().with(Tag::used_flag));
    claimed.push(t);
  }

  static Block* claimed_below(Block* t) noexcept {
    if (t == nullptr || !unclaimed(t)) return t;
    Block* const found = claimed_below(Tree::left(t));
    return found != nullptr ? found : claimed_below(Tree::right(t));
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

  std::uint32_t owner_;  // const
  Tree index_;
};

}  // namespace ts::classic
