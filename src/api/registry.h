// All live heaps of the public interface, so that a fork can lock them all. A table of functions
// makes heaps of all strategies and fits interchangeable at run time.
#pragma once

#include "libc/libc_rules.h"
#include "tsmalloc/classic.h"

namespace ts::api {

// The operations of a heap of unknown type; `self` is its LibcRules<Heap>.
struct Operations {
  void* (*malloc)(void* self, std::size_t bytes);
  void* (*memalign)(void* self, std::size_t alignment, std::size_t bytes);
  void* (*calloc)(void* self, std::size_t count, std::size_t each_bytes);
  void* (*realloc)(void* self, void* block, std::size_t bytes);
  void (*free)(void* self, void* block);
  std::size_t (*usable_size)(const void* block);
  HeapMeasures (*measures)(void* self);
  bool (*walk)(void* self, BlockVisitor visit, void* argument);
  bool (*trim)(void* self, std::size_t keep_bytes);
  bool (*is_valid)(void* self);
  void (*destroy)(void* self);
  void (*fork_prepare)(void* self);
  void (*fork_parent)(void* self);
  void (*fork_child)(void* self);
};

template <HeapLike Heap>
LibcRules<Heap>& allocator_of(void* self) noexcept {
  return *static_cast<LibcRules<Heap>*>(self);
}

template <HeapLike Heap>
inline constexpr Operations operations_of{
    .malloc = [](void* self, std::size_t bytes) { return allocator_of<Heap>(self).malloc(bytes); },
    .memalign =
        [](void* self, std::size_t alignment, std::size_t bytes) {
          return allocator_of<Heap>(self).memalign(alignment, bytes);
        },
    .calloc =
        [](void* self, std::size_t count, std::size_t each_bytes) {
          return allocator_of<Heap>(self).calloc(count, each_bytes);
        },
    .realloc = [](void* self, void* block,
                  std::size_t bytes) { return allocator_of<Heap>(self).realloc(block, bytes); },
    .free = [](void* self, void* block) { allocator_of<Heap>(self).free(block); },
    .usable_size = [](const void* block) { return LibcRules<Heap>::usable_size(block); },
    .measures = [](void* self) { return allocator_of<Heap>(self).heap().measures(); },
    .walk = [](void* self, BlockVisitor visit,
               void* argument) { return allocator_of<Heap>(self).heap().walk(visit, argument); },
    .trim = [](void* self,
               std::size_t keep_bytes) { return allocator_of<Heap>(self).heap().trim(keep_bytes); },
    .is_valid = [](void* self) { return allocator_of<Heap>(self).heap().is_valid(); },
    .destroy = [](void* self) { allocator_of<Heap>(self).heap().destroy(); },
    .fork_prepare = [](void* self) { allocator_of<Heap>(self).heap().fork_prepare(); },
    .fork_parent = [](void* self) { allocator_of<Heap>(self).heap().fork_parent(); },
    .fork_child = [](void* self) { allocator_of<Heap>(self).heap().fork_child(); },
};

}  // namespace ts::api

// The heap behind a public handle.
struct ts_heap {
  const ts::api::Operations* operations;  // const
  void* self;                             // const
  std::size_t mapped_bytes;               // const: of this and `self`; 0 if both are static
  ts_heap* previous = nullptr;            // protected by the registry's lock
  ts_heap* next = nullptr;
};

namespace ts::api {

void add(ts_heap& heap) noexcept;
// Removes a heap from the list and destroys it.
void remove_and_destroy(ts_heap& heap) noexcept;

}  // namespace ts::api
