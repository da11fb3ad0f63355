#include "classic/source.h"

#include "base/event_counts.h"
#include "classic/leaving_memory.h"
#include "os/os.h"

namespace ts::classic {
namespace {

// Whether the tag of `block` describes the block before it correctly.
bool previous_free_is_true(Block* block, const Block* previous) noexcept {
  const Tag tag = block->tag();
  return !tag.previous_free() || (previous != nullptr && block->previous() == previous &&
                                  previous->tag().owner() == tag.owner());
}

void count_trim(std::size_t bytes) noexcept {
  if constexpr (counting) count_event(Event::trim_calls);
  if constexpr (counting) count_event(Event::trimmed_bytes, bytes);
}

}  // namespace

Source::Growth Source::grow(std::size_t more_bytes, std::size_t block_bytes, Chunk* last) noexcept {
  const Guard guard{lock_};
  Growth growth{};
  if (config_.kind != SourceKind::mmap) growth = grow_break(more_bytes, block_bytes, last);
  if (growth.chunk == nullptr && config_.kind != SourceKind::buffer)
    growth = grow_mapping(block_bytes);
  if (growth.chunk != nullptr) {
    ++grow_calls_;
    segment_bytes_ += static_cast<std::size_t>(growth.end - growth.begin);
    if constexpr (counting) count_event(Event::growth_calls);
    if constexpr (counting)
      count_event(Event::growth_bytes, static_cast<std::size_t>(growth.end - growth.begin));
  }
  return growth;
}

std::byte* Source::break_end() noexcept {
  if (config_.kind == SourceKind::buffer) return config_.buffer + buffer_used_;
  return static_cast<std::byte*>(os::current_break());
}

// Moves the break (the process's or the buffer's) up; the old end, or null.
std::byte* Source::take_from_break(std::size_t bytes) noexcept {
  if (config_.kind == SourceKind::buffer) {
    if (bytes > config_.buffer_bytes - buffer_used_) return nullptr;
    buffer_used_ += bytes;
    return config_.buffer + buffer_used_ - bytes;
  }
  ++sbrk_calls_;
  auto* begin = static_cast<std::byte*>(os::grow_break(bytes));
  return begin != nullptr && address_of(begin) + bytes < address_limit ? begin : nullptr;
}

// Moves the buffer's break down at once; memory of the process's break is noted.
bool Source::give_to_break(std::byte* end, std::size_t bytes) noexcept {
  if (config_.kind == SourceKind::buffer) {
    if (end != break_end()) return false;
    buffer_used_ -= bytes;
    return true;
  }
  const Guard guard{break_lock};
  return leave_break(end - bytes, end);
}

Source::Growth Source::grow_break(std::size_t more_bytes, std::size_t block_bytes,
                                  Chunk* last) noexcept {
  // Enough for a chunk at any address, even if the break moves between the two calls.
  constexpr std::size_t least_bytes = Chunk::min_bytes + granule_bytes;
  const Guard guard{break_lock};
  std::byte* const end = break_end();
  if (last != nullptr && last->from_break() && last->end() == end) {
    const std::size_t bytes = align_up(
        more_bytes > config_.growth_bytes ? more_bytes : config_.growth_bytes, granule_bytes);
    std::byte* const begin = take_from_break(bytes);
    if (begin == end) {
      last->bytes_and_origin += bytes;
      return {last, begin, begin + bytes};
    }
    if (begin != nullptr && bytes >= least_bytes) return new_chunk(begin, bytes, true);
  }
  const std::size_t exact = block_bytes + Chunk::overhead_bytes;
  const std::size_t needed = exact > least_bytes ? exact : least_bytes;
  if (config_.kind == SourceKind::sbrk) {
    if (Chunk* chunk = reuse_left_behind(needed, true))
      return new_chunk(chunk->begin(), chunk->bytes(), true);
  }
  // Other code may have left the break at any address: up to 15 bytes are lost to alignment.
  const std::size_t alignment =
      config_.kind == SourceKind::sbrk ? break_alignment() : granule_bytes;
  const std::size_t slack = -address_of(end) & (alignment - 1);
  const std::size_t bytes =
      align_up(needed > config_.growth_bytes ? needed : config_.growth_bytes, granule_bytes) +
      slack;
  std::byte* const begin = take_from_break(bytes);
  if (begin == nullptr) return {};
  const std::size_t unused = begin == end ? slack : 0;
  return new_chunk(begin + unused, bytes - unused, true);
}

Source::Growth Source::grow_mapping(std::size_t block_bytes) noexcept {
  const std::size_t needed = block_bytes + Chunk::overhead_bytes;
  {
    const Guard guard{break_lock};
    if (Chunk* chunk = reuse_left_behind(needed, false))
      return new_chunk(chunk->begin(), chunk->bytes(), false);
  }
  const std::size_t bytes =
      align_up(needed > config_.growth_bytes ? needed : config_.growth_bytes, os::page_bytes());
  auto* begin = static_cast<std::byte*>(os::map(bytes));
  return begin == nullptr ? Growth{} : new_chunk(begin, bytes, false);
}

Source::Growth Source::new_chunk(std::byte* begin, std::size_t bytes, bool from_break) noexcept {
  std::byte* const aligned = begin + (-address_of(begin) & (granule_bytes - 1));
  auto* chunk = reinterpret_cast<Chunk*>(aligned);
  const std::size_t usable =
      align_down(bytes - static_cast<std::size_t>(aligned - begin), granule_bytes);
  chunk->bytes_and_origin = usable | (from_break ? 1U : 0U);
  chunk->previous = nullptr;
  chunk->next = first_;
  if (first_ != nullptr) first_->previous = chunk;
  first_ = chunk;
  ++chunks_;
  return {chunk, chunk->begin(), chunk->end()};
}

void Source::unlink(Chunk* chunk) noexcept {
  (chunk->previous != nullptr ? chunk->previous->next : first_) = chunk->next;
  if (chunk->next != nullptr) chunk->next->previous = chunk->previous;
  --chunks_;
}

// Reverts it, if nothing else has changed.
void Source::relink(Chunk* chunk) noexcept {
  (chunk->previous != nullptr ? chunk->previous->next : first_) = chunk;
  if (chunk->next != nullptr) chunk->next->previous = chunk;
  ++chunks_;
}

bool Source::shrink(Chunk* chunk, std::size_t bytes) noexcept {
  const Guard guard{lock_};
  if (!chunk->from_break()) {
    leave(chunk->end() - bytes, bytes);
  } else if (!give_to_break(chunk->end(), bytes)) {
    return false;
  }
  chunk->bytes_and_origin -= bytes;
  segment_bytes_ -= bytes;
  count_trim(bytes);
  return true;
}

bool Source::release(Chunk* chunk) noexcept {
  const Guard guard{lock_};
  const std::size_t bytes = chunk->bytes();
  // First, because another thread may send it as soon as it is noted.
  unlink(chunk);
  if (!chunk->from_break()) {
    leave(chunk->begin(), bytes);
  } else if (!give_to_break(chunk->end(), bytes)) {
    relink(chunk);
    return false;
  }
  segment_bytes_ -= bytes;
  count_trim(bytes);
  return true;
}

void Source::release_all() noexcept {
  const GivesBack gives_back;
  retry_left_behind();
  while (Chunk* const chunk = first_) {
    if (release(chunk)) {
      send_leaving();  // so that the next one is at the end of the break
      continue;
    }
    {
      const Guard guard{lock_};
      unlink(chunk);
    }
    if (config_.kind == SourceKind::buffer) continue;
    const std::size_t bytes = chunk->bytes();
    const std::uintptr_t first_page = align_up(address_of(chunk), os::page_bytes());
    const std::uintptr_t end_page = align_down(address_of(chunk->end()), os::page_bytes());
    if (end_page > first_page)
      os::discard(reinterpret_cast<void*>(first_page), end_page - first_page);
    const Guard guard{break_lock};
    leave_behind(reinterpret_cast<std::byte*>(chunk), bytes, true);
  }
}

void Source::set_growth(std::size_t bytes) noexcept {
  const Guard guard{lock_};
  config_.growth_bytes = bytes;
}

void Source::measure(HeapMeasures& measures) noexcept {
  const Guard guard{lock_};
  measures.segment_bytes += segment_bytes_;
  measures.grow_calls += grow_calls_;
  measures.sbrk_calls += sbrk_calls_;
  measures.chunks += chunks_;
}

bool Source::walk(BlockVisitor visit, void* argument) noexcept {
  return for_each_chunk([&](Chunk& chunk) {
    for (Block* block = chunk.first_block(); !block->is_fence(); block = block->next()) {
      const Tag tag = block->tag();
      const BlockState state = !tag.used()    ? BlockState::free
                               : tag.cached() ? BlockState::cached
                                              : BlockState::used;
      if (!visit({block->payload(), block->payload_bytes(), state, tag.owner()}, argument))
        return false;
    }
    return true;
  });
}

bool Source::tags_are_valid() noexcept {
  return for_each_chunk([](Chunk& chunk) {
    if (!chunk.first_block()->tag().first()) return false;
    Block* previous = nullptr;
    for (Block* block = chunk.first_block(); block != chunk.fence();
         previous = block, block = block->next()) {
      if (!previous_free_is_true(block, previous) || block->block_bytes() < min_block_bytes)
        return false;
      if (block->next()->begin() > chunk.fence()->begin()) return false;
    }
    return previous_free_is_true(chunk.fence(), previous) && chunk.fence()->is_fence() &&
           chunk.fence()->tag().used();
  });
}

void Source::fork_prepare() noexcept { lock_.lock(); }

void Source::fork_parent() noexcept { lock_.unlock(); }

void Source::fork_child() noexcept {
  lock_.reset_after_fork();
  fork_child_leaving();
}

}  // namespace ts::classic
