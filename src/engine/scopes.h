// Scopes: while a thread is in the scope of an arena, the arena's heap is its current heap, so that
// malloc and free of any code go there, as fast as anywhere. Scopes nest. Each has a frame: the
// arena's own, or, where that is in use, a block of the thread's heap.
//
//   ts_scope_enter -> enter_scope -> enter_scope_slow -> claim_arena (arena_use.h) | enter_again
//   ts_scope_leave -> leave_scope
//   thread_ends    -> leave_all_scopes (arena_use.h)
#pragma once

#include "engine/arena_use.h"

namespace ts::engine {

// Enters the scope of an arena, or, by 0, that of the thread's own heap. 0; EINVAL and EBUSY as
// claim_arena(); ENOMEM if the thread has no heap, or its frame no memory.
int enter_scope(ArenaHandle handle) noexcept;

// Leaves the innermost scope; EINVAL if there is none.
int leave_scope() noexcept;

}  // namespace ts::engine
