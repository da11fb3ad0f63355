// The file that libtsmalloc-tracker.so keeps for each program image in each process, mapped and
// shared, so that a crash or _exit loses nothing. The reader is lab/tsmlab/tracker.py.
//
//   offset  0         8     12     16        72               152          2128       3104         4096
//           | magic   | pid | ppid | 7 calls | 10 other sums  | executable | provider | deep_bound |
//           4096                          20480
//           | 256 threads, 8 sums each    |
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "interpose/next.h"

namespace ts {

using AnyCounter = std::atomic<std::uint64_t>;  // relaxed; the reader comes after the process's end

// For one thread: the first that allocated or freed has the first place. All further threads share
// the last place.
struct ThreadSums {
  AnyCounter allocations;
  AnyCounter frees;
  AnyCounter resizes;  // in place; a block that moves counts as freed and allocated
  AnyCounter requested_bytes;
  AnyCounter freed_bytes;
  AnyCounter foreign_frees;  // of blocks that another thread had allocated
  AnyCounter reused_bytes;   // of its allocations, what had been allocated before
  AnyCounter usable_bytes;   // of its allocations, from malloc_usable_size
};

inline constexpr std::size_t thread_places = 256;
inline constexpr std::size_t entries = static_cast<std::size_t>(Entry::count);

struct Record {
  char magic[8];
  std::int32_t pid;
  std::int32_t parent_pid;
  AnyCounter calls[entries];  // that the program made itself; see Call
  AnyCounter granted_bytes;   // by these calls
  AnyCounter deep_bindings;   // libraries loaded with RTLD_DEEPBIND
  AnyCounter knows_usable;    // 1: malloc_usable_size comes from the library that provides malloc
  AnyCounter live_bytes;
  AnyCounter live_blocks;
  AnyCounter peak_live_bytes;
  AnyCounter peak_live_blocks;
  AnyCounter inherited_bytes;   // already live when the record began, in a forked child
  AnyCounter untracked_blocks;  // allocations for which the tracker had no memory
  AnyCounter missed_frees;      // known blocks that were allocated again without a free
  char executable[1976];
  char provider[976];    // the library that provides the next malloc
  char deep_bound[992];  // the first of the deep_bindings, as passed to dlopen
  ThreadSums threads[thread_places];
};
static_assert(offsetof(Record, executable) == 152 && offsetof(Record, threads) == 4096 &&
              sizeof(Record) == 20'480);
static_assert(AnyCounter::is_always_lock_free);

}  // namespace ts
