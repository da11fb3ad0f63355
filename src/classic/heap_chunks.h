// The chunks of one heap over boundary tags: the heap grows by a chunk or at the end of its newest
// one, and returns free ends and free chunks to the system. Its FreeBlocks (`free`) know which
// blocks are free.
//
//   grow -> Source::grow -> add_memory -> free.add
//   give_back_end -> give_back_chunk -> Source::release         a mapping that is one free block
//                 -> Source::shrink -> free.shorten_last        the end of the newest chunk
//   trim -> give_back_end, give_back_free_chunks
#pragma once

#include "base/event_counts.h"
#include "classic/free_blocks.h"
#include "classic/leaving_memory.h"
#include "classic/source.h"
#include "os/os.h"

namespace ts::classic {

// How much a release keeps at the end of the segment. Between this and the trim threshold
// (config.h), frees and allocations cause no page faults.
inline constexpr std::size_t trim_keep_bytes = std::size_t{1} << 20;

template <FitPolicy Fit, class Sharing>
class HeapChunks {
 public:
  using Free = FreeBlocks<Fit, Sharing>;

  constexpr explicit HeapChunks(Source& source) noexcept : source_{source} {}

  // Grows by a free block of `bytes`.
  bool grow(Free& free, std::size_t bytes) noexcept {
    if (!may_grow_) return false;
    std::size_t more_bytes = bytes;
    if (last_ != nullptr) {
      const Block* top = Free::before(last_->fence());
      if (top != nullptr && top->block_bytes() < bytes) more_bytes -= top->block_bytes();
    }
    const Source::Growth growth = source_.grow(more_bytes, bytes, last_);
    if (growth.chunk == nullptr) return false;
    add_memory(free, growth);
    return true;
  }

  // If growth is refused, perhaps because of unused memory of this heap, returns that to the
  // system. The caller retries once it is gone (allocate_or_make_room).
  bool grow_or_make_room(Free& free, std::size_t bytes) noexcept {
    if (grow(free, bytes)) return true;
    give_back_free_chunks(free);
    return false;
  }

  // Makes grow() fail.
  void forbid_growth() noexcept { may_grow_ = false; }

  // Returns a free block at the end of its chunk to the system, all but `keep_bytes`.
  bool give_back_end(Free& free, Block* block, std::size_t keep_bytes) noexcept {
    Block* const fence = block->next();
    if (!fence->is_fence() || !Sharing::owns(fence->tag(), free.owner())) return false;
    if (block->tag().first()) {
      Chunk* const chunk = Chunk::of_first_block(block);
      if (keep_bytes == 0 || !chunk->from_break()) return give_back_chunk(free, chunk);
    }
    if (last_ == nullptr || last_->fence() != fence) return false;
    const std::size_t bytes = block->block_bytes();
    if (bytes < keep_bytes + min_block_bytes) return false;
    const std::size_t surplus = align_down(bytes - keep_bytes - min_block_bytes, os::page_bytes());
    if (surplus == 0 || !source_.shrink(last_, surplus)) return false;
    free.shorten_last(block, bytes - surplus);
    return true;
  }

  // Returns memory at the end of the segment and free chunks.
  bool trim(Free& free, std::size_t keep_bytes) noexcept {
    bool gave = false;
    if (last_ != nullptr) {
      if (Block* top = Free::before(last_->fence())) gave = give_back_end(free, top, keep_bytes);
    }
    return give_back_free_chunks(free) || gave;
  }

  static bool is_whole_mapping(Block* block, std::uint32_t owner) noexcept {
    return is_whole_chunk(block, owner) && !Chunk::of_first_block(block)->from_break();
  }

 private:
  using Tree = typename Free::Tree;

  // Tags new memory as one block, and frees it.
  void add_memory(Free& free, const Source::Growth& growth) noexcept {
    const std::uint32_t owner = free.owner();
    Block* block = nullptr;
    if (growth.begin == growth.chunk->begin()) {
      block = growth.chunk->first_block();
      block->set_tag(Tag{growth.chunk->bytes() - Chunk::overhead_bytes, owner,
                         Tag::used_flag | Tag::first_flag});
    } else {
      block = Block::at(growth.begin - tag_bytes);  // the fence becomes the tag of the new block
      const auto bytes = static_cast<std::size_t>(growth.end - growth.begin);
      block->set_tag(Tag{bytes, owner, block->tag().flags(Tag::place_flags)});
    }
    growth.chunk->fence()->set_tag(Tag{0, owner, Tag::used_flag});
    last_ = growth.chunk;
    free.add(block);
  }

  // Returns every chunk that is one free block, as far as the system accepts it; true if any was
  // returned.
  bool give_back_free_chunks(Free& free) noexcept {
    bool gave = false;
    for (;;) {
      FreeChunks found;
      collect_below(free.root(), free.owner(), found);
      unsigned given = 0;
      for (unsigned i = 0; i < found.count; ++i)
        given += give_back_chunk(free, found.chunks[i]) ? 1U : 0U;
      if (given == 0) return gave;
      gave = true;
    }
  }

  // A few at a time: the tree must not change during a walk.
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
  static void collect_below(Block* t, std::uint32_t owner, FreeChunks& found) noexcept {
    if (t == nullptr || found.count == FreeChunks::capacity) return;
    if (is_whole_chunk(t, owner)) found.chunks[found.count++] = Chunk::of_first_block(t);
    collect_below(Tree::left(t), owner, found);
    collect_below(Tree::right(t), owner, found);
  }

  bool give_back_chunk(Free& free, Chunk* chunk) noexcept {
    free.erase(chunk->first_block());
    Chunk* const last = last_;
    if (last_ == chunk) last_ = nullptr;
    if (source_.release(chunk)) return true;
    last_ = last;
    free.insert(chunk->first_block());
    return false;
  }

  Source& source_;
  Chunk* last_ = nullptr;  // the newest chunk of this heap: the one that can grow in place
  bool may_grow_ = true;
};

}  // namespace ts::classic
