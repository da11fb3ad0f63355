// libtsmalloc-count.so: preloaded before an allocator, it counts the calls that the program makes.
//
// Why it exists: a preload that was silently ignored looks like a very ordinary allocator. A count
// above zero, with the name of the library that served the calls, proves that the program runs on
// the allocator under test. What it refuses to do: know more of a call than which it was and how
// many bytes it got. A refused request counts as a call, but not its bytes.
#pragma once

#include "count/record.h"
#include "interpose/entry.h"

namespace ts {

// One call that the program makes.
//
// Its way may lead through us again: libstdc++'s operator new calls malloc, a small allocator's
// calloc calls its malloc. The program made one call, so finish() takes back what was counted in
// between. A bad_alloc thrown through us skips finish(), which then leaves the failed attempts
// counted and nothing else wrong: no state says "inside a call", so none can stay set.
class Call {
 public:
  Call(Entry entry, void* block, std::size_t bytes, std::size_t alignment);
  void finish(const void* block, std::size_t bytes);

 private:
  std::uint64_t
      mine_[counter_count];  // this thread's tally as it is with this call and nothing else
};

}  // namespace ts
