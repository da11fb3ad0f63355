// libtsmalloc-tracker.so: preloaded before any allocator, it counts the calls that a program makes
// and tracks every block: its size, its thread, and what of its memory had been handed out before.
//
// A count above zero, with the name of the library that served the calls, proves that the program
// runs on the allocator under test; a preload that was silently ignored looks like a very ordinary
// allocator. Live bytes, frees by other threads and memory that is handed out again explain results,
// and no allocator tells all of them. The tracker takes no memory from the heap under test.
//
// TSMALLOC_TRACKER names the directory of its files; TSMALLOC_TRACKER_CALLS does the same for a
// tracker that counts calls alone, without the memory and the time that blocks take. Without either,
// or with a directory that cannot be written, the program runs on as it would have. Calls that an
// allocator adds (mallocx, mi_malloc) are not seen.
#pragma once

#include <cstddef>
#include <cstdint>

#include "interpose/next.h"
#include "tracker/blocks.h"
#include "tracker/record.h"

namespace ts {

// What a thread has counted: one for each Entry, and the bytes that were granted.
struct Tally {
  std::uint64_t calls[entries];
  std::uint64_t granted_bytes;
};

// One call that the program makes.
//
// Its way may lead through us again: libstdc++'s operator new calls malloc, a small allocator's
// calloc calls its malloc. No state says "inside a call", since a call that throws would leave it
// set. Instead finish() takes back what has been counted in between (the failed attempts within a
// call that throws stay counted). A block that a nested call has just entered is entered again by
// the outer one, which then only corrects its size; and what the outer call has taken out, a nested
// one does not find.
//
// A block leaves the table before it is given back, and enters it after it was handed out, so no
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
  Block known_{};                    // what the table said of `given_`
  std::uint64_t usable_before_ = 0;  // of `given_`, when it is resized
  Tally mine_;                       // this thread's, with this call and nothing else
};

// Notes that a library is about to be loaded with RTLD_DEEPBIND. Never allocates; leaves errno.
void note_deep_binding(const char* library);

}  // namespace ts
