// libtsmalloc-ledger.so: preloaded before any allocator, it keeps the books on every block.
//
// Why it exists: bytes in use at each moment, frees by other threads and memory that is handed out
// again are facts of a program and of its allocator's policy. No allocator tells all of them. What
// it refuses to do: take memory from the heap under test, or time anything. A block that came or
// went by a function that we do not stand before (mallocx, mi_malloc) is not known; everything else
// is exact, whatever the allocator.
//
// Order: a block leaves the books before it is given back, and enters them after it was handed out.
// So no address is ever in them twice, and the live bytes are never more than there are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "interpose/next.h"
#include "ledger/blocks.h"

namespace ts {

// One call that the program makes.
//
// Its way may lead through us again. No state says "inside a call", since a call that throws would
// leave it set: a block that a nested call has just entered is entered again by the outer one, which
// then only corrects its size; and what the outer call has taken out, a nested one does not find.
class Call {
 public:
  Call(Entry entry, void* block, std::size_t bytes, std::size_t alignment);
  void finish(void* block, std::size_t bytes);

 private:
  void finish_resize(void* block, std::size_t bytes);

  Entry entry_;
  void* given_;
  Block known_{};  // what the books said of `given_`
};

}  // namespace ts
