// The functions of tsmalloc/tsmalloc.h for any heap. What a heap does not support has no effect or
// returns an error.
#pragma once

#include <cerrno>
#include <cstddef>

#include "base/heap_like.h"
#include "base/heap_map.h"
#include "libc/libc_rules.h"
#include "os/options.h"

namespace ts {

// 0, or an error of change_option().
template <class Heap>
int set_option(Heap& heap, const char* name, const char* value) noexcept {
  const int error = change_option(name, value);
  if constexpr (requires { heap.follow_options(); }) heap.follow_options();
  return error;
}

// 0, or ENOTSUP.
template <class Heap>
int set_event_handler([[maybe_unused]] Heap& heap, [[maybe_unused]] auto* handler) noexcept {
  if constexpr (requires { heap.set_event_handler(handler); }) {
    heap.set_event_handler(handler);
    return 0;
  }
  return ENOTSUP;
}

// 0, ENOTSUP, or another error.
template <class Heap>
int start_profile([[maybe_unused]] Heap& heap, [[maybe_unused]] std::size_t interval) noexcept {
  if constexpr (requires { heap.start_profile(interval); }) return heap.start_profile(interval);
  return ENOTSUP;
}
template <class Heap>
int stop_profile([[maybe_unused]] Heap& heap) noexcept {
  if constexpr (requires { heap.stop_profile(); }) return heap.stop_profile(), 0;
  return ENOTSUP;
}
template <class Heap>
int write_profile([[maybe_unused]] Heap& heap, [[maybe_unused]] int descriptor,
                  [[maybe_unused]] bool is_peak) noexcept {
  if constexpr (requires { heap.write_profile(descriptor, is_peak); })
    return heap.write_profile(descriptor, is_peak);
  return ENOTSUP;
}

// Returns how many bytes were purged; 0 for a heap that does not count them.
template <class Heap>
std::size_t purge(Heap& heap) noexcept {
  const std::size_t before = heap.measures().purged_bytes;
  heap.trim(0);
  return heap.measures().purged_bytes - before;
}

template <class Heap>
void flush_thread([[maybe_unused]] Heap& heap) noexcept {
  if constexpr (requires { heap.flush_thread(); }) heap.flush_thread();
}

// `bytes` may be fewer than any request for this block.
template <class Heap>
bool expand(Heap& heap, void* block, std::size_t bytes) noexcept {
  if (block == nullptr || bytes > max_object_bytes - min_alignment) return false;
  const std::size_t now = Heap::usable_size(block);
  return now != 0 && (bytes <= now || heap.resize(block, bytes));
}

template <class Heap>
int housekeep([[maybe_unused]] Heap& heap) noexcept {
  if constexpr (requires { heap.housekeep(); }) return heap.housekeep();
  return -1;
}

// False for a heap that cannot know.
template <class Heap>
bool owns([[maybe_unused]] const Heap& heap, const void* block) noexcept {
  if constexpr (requires { Heap::owns(block); }) return block != nullptr && Heap::owns(block);
  return false;
}

template <class Heap>
bool find_block([[maybe_unused]] const Heap& heap, const void* address, BlockView& block,
                MapExtent& pages) noexcept {
  if constexpr (requires { Heap::find_block(address, block, pages); })
    return Heap::find_block(address, block, pages);
  return false;
}

// False for a heap without pages.
template <class Heap>
bool walk_pages([[maybe_unused]] const Heap& heap, MapVisitor visit, void* argument) noexcept {
  if constexpr (requires { Heap::walk_pages(visit, argument); })
    return Heap::walk_pages(visit, argument);
  return false;
}

}  // namespace ts
