// What each thread keeps for each heap: one pointer per (thread, heap), found through a single
// thread-local pointer of 8 bytes, and handed back to the heap when the thread ends. It refuses to
// know what the pointer means.
//
//   thread-local pointer -> table of this thread -> entry of this heap {state, serial}
//
// Heaps come and go while threads keep entries for them: a destroyed heap's slot number is used
// again, and an entry with another serial number than the heap's is an old one, and void. Only its
// own thread reads and writes a table, except when the thread ends or after a fork.
//
// A thread that is ending (its table is gone, and other destructors still allocate and free) gets
// no table again: make_ready() fails, and the heap serves such calls without state of the thread.
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

  // Makes sure that set() works in this thread; false if the thread is ending, or there is no
  // memory for a table, or too many heaps keep states. May allocate (the C library registers the
  // thread's end), so it is called without any lock, and may have called set() by itself.
  bool make_ready() noexcept;

  // Remembers this thread's state. Only after make_ready() succeeded in this thread.
  void set(void* state) noexcept;

  // Forgets all threads' states for this heap. No thread may be inside the heap.
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
