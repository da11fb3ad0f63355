// The libc rules of tsmalloc/arena.h over any heap: errno, and what a heap without arenas returns.
// Handles are numbers here; arenas.inc has the names.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace ts {

template <class Allocator>
concept HasArenas = requires(Allocator rules) { rules.heap().create_arena(); };

// On failure returns 0 and sets errno.
template <class Allocator>
std::uintptr_t create_arena(Allocator& rules) noexcept {
  std::uintptr_t arena = 0;
  if constexpr (HasArenas<Allocator>) arena = rules.heap().create_arena();
  if (arena == 0) errno = HasArenas<Allocator> ? ENOMEM : ENOTSUP;
  return arena;
}

template <class Allocator>
int reset_arena(Allocator& rules, std::uintptr_t arena) noexcept {
  if constexpr (HasArenas<Allocator>) return rules.heap().reset_arena(arena);
  return ENOTSUP;
}

template <class Allocator>
int destroy_arena(Allocator& rules, std::uintptr_t arena) noexcept {
  if constexpr (HasArenas<Allocator>) return rules.heap().destroy_arena(arena);
  return ENOTSUP;
}

// Calls `note(usage)` if the arena exists.
template <class Allocator>
int measure_arena(Allocator& rules, std::uintptr_t arena, auto note) noexcept {
  if constexpr (HasArenas<Allocator>) return rules.heap().measure_arena(arena, note);
  return ENOTSUP;
}

template <class Allocator>
int enter_scope(Allocator& rules, std::uintptr_t arena) noexcept {
  if constexpr (HasArenas<Allocator>) return rules.heap().enter_scope(arena);
  return ENOTSUP;
}

template <class Allocator>
int leave_scope(Allocator& rules) noexcept {
  if constexpr (HasArenas<Allocator>) return rules.heap().leave_scope();
  return ENOTSUP;
}

// Returns the result of `allocate()` within the arena's scope; null, with errno set, if it cannot
// be entered.
template <class Allocator, class Allocate>
void* in_arena(Allocator& rules, std::uintptr_t arena, Allocate allocate) noexcept {
  const bool is_none = HasArenas<Allocator> && arena == 0;  // 0: the thread's own heap
  const int error = is_none ? EINVAL : enter_scope(rules, arena);
  if (error != 0) [[unlikely]] {
    errno = error;
    return nullptr;
  }
  void* const block = allocate();
  leave_scope(rules);
  return block;
}

}  // namespace ts
