// The malloc family and the operators, over the functions of the one file that includes this:
//
//   void* allocate(std::size_t bytes)                  null, as refuse() says, only for what
//                                                      no system could serve
//   void* allocate_aligned(std::size_t alignment, std::size_t bytes)   up to a page's alignment
//   void release(void* block)                          never null
//   std::size_t copy_bytes(const void* block)          at least what was asked for; may be read
//
// What it refuses to do: tell a block's usable size, which not every floor knows, and throw: a
// program that runs out of memory on a floor ends.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>

#include "floors/space.h"

namespace ts::floor {
namespace {

inline void* allocate_or_give_up(std::size_t bytes) {
  void* const block = allocate(bytes);
  if (block == nullptr) [[unlikely]]
    give_up();
  return block;
}

void* align(std::size_t alignment, std::size_t bytes) {
  if (alignment <= smallest_alignment) return allocate(bytes);
  return alignment <= page_bytes ? allocate_aligned(alignment, bytes) : refuse();
}

void* align_or_give_up(std::align_val_t alignment, std::size_t bytes) {
  void* const block = align(static_cast<std::size_t>(alignment), bytes);
  if (block == nullptr) give_up();
  return block;
}

inline void release_any(void* block) {
  if (block != nullptr) release(block);
}

}  // namespace
}  // namespace ts::floor

extern "C" {

void* malloc(std::size_t bytes) noexcept { return ts::floor::allocate(bytes); }

void free(void* block) noexcept { ts::floor::release_any(block); }

void* calloc(std::size_t count, std::size_t size) noexcept {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) return ts::floor::refuse();
  void* const block = malloc(bytes);
  return block == nullptr ? nullptr : std::memset(block, 0, bytes);
}

void* realloc(void* old, std::size_t bytes) noexcept {
  void* const block = malloc(bytes);
  if (block == nullptr || old == nullptr) return block;
  std::memmove(block, old, std::min(bytes, ts::floor::copy_bytes(old)));
  ts::floor::release(old);
  return block;
}

void* reallocarray(void* old, std::size_t count, std::size_t size) noexcept {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) return ts::floor::refuse();
  return realloc(old, bytes);
}

void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  return ts::floor::align(alignment, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  return memalign(alignment, bytes);
}

int posix_memalign(void** result, std::size_t alignment, std::size_t bytes) noexcept {
  void* const block = ts::floor::align(alignment, bytes);
  if (block == nullptr) return ENOMEM;
  *result = block;
  return 0;
}

void* valloc(std::size_t bytes) noexcept { return memalign(4096, bytes); }
void* pvalloc(std::size_t bytes) noexcept {
  return memalign(4096, ts::floor::round_up(bytes, 4096));
}

void free_sized(void* block, std::size_t) noexcept { ts::floor::release_any(block); }
void free_aligned_sized(void* block, std::size_t, std::size_t) noexcept {
  ts::floor::release_any(block);
}

}  // extern "C"

using Align = std::align_val_t;
using Nothrow = const std::nothrow_t&;

void* operator new(std::size_t bytes) { return ts::floor::allocate_or_give_up(bytes); }
void* operator new[](std::size_t bytes) { return ts::floor::allocate_or_give_up(bytes); }
void* operator new(std::size_t bytes, Nothrow) noexcept { return ts::floor::allocate(bytes); }
void* operator new[](std::size_t bytes, Nothrow) noexcept { return ts::floor::allocate(bytes); }
void* operator new(std::size_t bytes, Align to) { return ts::floor::align_or_give_up(to, bytes); }
void* operator new[](std::size_t bytes, Align to) { return ts::floor::align_or_give_up(to, bytes); }
void* operator new(std::size_t bytes, Align to, Nothrow) noexcept {
  return ts::floor::align(static_cast<std::size_t>(to), bytes);
}
void* operator new[](std::size_t bytes, Align to, Nothrow) noexcept {
  return ts::floor::align(static_cast<std::size_t>(to), bytes);
}

void operator delete(void* block) noexcept { ts::floor::release_any(block); }
void operator delete[](void* block) noexcept { ts::floor::release_any(block); }
void operator delete(void* block, std::size_t) noexcept { ts::floor::release_any(block); }
void operator delete[](void* block, std::size_t) noexcept { ts::floor::release_any(block); }
void operator delete(void* block, Nothrow) noexcept { ts::floor::release_any(block); }
void operator delete[](void* block, Nothrow) noexcept { ts::floor::release_any(block); }
void operator delete(void* block, Align) noexcept { ts::floor::release_any(block); }
void operator delete[](void* block, Align) noexcept { ts::floor::release_any(block); }
void operator delete(void* block, std::size_t, Align) noexcept { ts::floor::release_any(block); }
void operator delete[](void* block, std::size_t, Align) noexcept { ts::floor::release_any(block); }
void operator delete(void* block, Align, Nothrow) noexcept { ts::floor::release_any(block); }
void operator delete[](void* block, Align, Nothrow) noexcept { ts::floor::release_any(block); }
