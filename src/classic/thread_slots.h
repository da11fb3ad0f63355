// The state of each thread in each heap: one pointer per (thread, heap), found through a single
// thread-local pointer. When the thread ends, the heap gets its pointer back. The meaning of a
// state is the heap's own.
//
//   thread-local pointer -> table of this thread -> entry of this heap {state, serial}
//
// Threads keep entries of destroyed heaps, whose slot numbers are reused. An entry is invalid
// unless it has the serial number of the slot's heap. Only its own thread reads and writes a table,
// except in the child of a fork.
//
// A thread that is ending gets no second table, although other destructors still allocate and free.
// For it, make_ready() fails, and the heap handles such calls without per-thread state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/platform.h"

namespace ts::classic {

class ThreadSlots {
 public:
  // Called as retire(heap, state) when a thread ends, by that thread, under the lock of all thread
  // tables.
  using Retire = void (*)(void* heap, void* state);

  constexpr ThreadSlots(void* heap, Retire retire) noexcept : heap_{heap}, retire_{retire} {}
  ThreadSlots(const ThreadSlots&) = delete;
  ThreadSlots& operator=(const ThreadSlots&) = delete;

  // This thread's state for this heap, null if it has none.
  void* get() const noexcept;

  // Ensures that set() works in this thread. False if the thread is ending, there is no memory for
  // a table, or too many heaps keep states. May allocate (the C library registers the thread's
  // end), so it is called without any lock, and may have called set() by itself.
  bool make_ready() noexcept;

  // Remembers this thread's state. Only after make_ready() succeeded in this thread.
  void set(void* state) noexcept;

  // Drops all threads' states for this heap. No thread may be inside the heap.
  void close() noexcept;

  // Around fork, for all heaps of the process together; call before locking anything of the heap.
  static void fork_prepare() noexcept;
  static void fork_parent() noexcept;
  static void fork_child() noexcept;

 private:
  bool open() noexcept;

  void* heap_;                       // const
  Retire retire_;                    // const
  std::uint32_t slot_plus_one_ = 0;  // any: atomic; 0 until the first set()
  std::uint32_t serial_ = 0;         // const once slot_plus_one_ is set
};

}  // namespace ts::classic
