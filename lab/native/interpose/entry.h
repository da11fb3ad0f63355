// The functions that a shim stands before, in groups.
//
// Why it exists: what is done with a call differs from shim to shim, what there is to call does not.
// What it refuses to do: tell apart what no shim has had to tell apart.
#pragma once

namespace ts {

// The order is that of the counters in the file of libtsmalloc-count.so.
enum class Entry : unsigned {
  malloc,
  calloc,
  realloc,
  free,
  aligned,  // memalign, aligned_alloc, posix_memalign, valloc, pvalloc
  operator_new,
  operator_delete,
  count
};

}  // namespace ts
