// libtsmalloc-tracker.so: preloaded before any allocator, it counts the calls that a program makes
// and tracks every block: its size, its thread, and how much of its memory had been allocated
// before.
//
// A count above zero, with the name of the library that received the calls, proves that the program
// runs on the allocator under test; a silently ignored preload looks like a very ordinary
// allocator. Live bytes, frees by other threads and reused memory explain results, and no allocator
// reports all of them. The tracker takes no memory from the heap under test.
//
// TSMALLOC_TRACKER is the directory of its files; TSMALLOC_TRACKER_CALLS does the same for a
// tracker that only counts calls, without the memory and time that tracking blocks takes. Without
// either, or if the directory cannot be written, the program runs as usual. Calls that an allocator
// adds (mallocx, mi_malloc) are not seen.
#pragma once

#include <cstddef>
#include <cstdint>

#include "interpose/next.h"
#include "tracker/blocks.h"

namespace ts {

inline constexpr std::size_t entries = static_cast<std::size_t>(Entry::count);

// A thread's counts: one for each Entry, and the bytes granted.
struct Tally {
  std::uint64_t calls[entries];
  std::uint64_t granted_bytes;
};

// One call that the program makes.
//
// It may come through here again: libstdc++'s operator new calls malloc, a small allocator's calloc
// calls its malloc. A flag "inside a call" would stay set after a call that throws. Instead
// finish() subtracts what was counted in between (the failed attempts within a call that throws
// stay counted). A block that a nested call has just entered is entered again by the outer one,
// which then only corrects its size; and a nested call does not find what the outer call has
// removed.
//
// A block is removed from the table before it is freed, and entered after it was allocated, so no
// address is ever in it twice.
class Call {
 public:
  Call(Entry entry, void* block, std::size_t bytes, std::size_t alignment);
  void finish(void* block, std::size_t bytes);

 private:
  void uncount_nested() const;
  void finish_resize(void* block, std::size_t bytes) const;

  Entry entry_;
  void* given_;
  Block known_{};                    // the table's entry for `given_`
  std::uint64_t usable_before_ = 0;  // of `given_`, when it is resized
  Tally mine_;                       // this thread's, with only this call added
};

// Notes that a library is about to be loaded with RTLD_DEEPBIND. Never allocates; preserves errno.
void note_deep_binding(const char* library);

}  // namespace ts
