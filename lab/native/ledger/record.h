// Where the sums are kept: one file per program image in each process, mapped and shared, so that a
// crash or _exit loses nothing.
//
// Why it exists: a run that is ended by its time limit has books, too. What it refuses to do: fail;
// see interpose/process_file.h. The reader is lab/tsmlab/observing.py.
//
//   offset  0         8     12     16            128              2112            4096
//           | magic   | pid | ppid | 10 totals   | executable     | provider      |
//           4096                          20480                        36480
//           | 256 threads, 8 counters each | 1000 points of the curve |
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ts {

using AnyCounter = std::atomic<std::uint64_t>;  // relaxed; the reader comes after the process's end

// Of one thread; of all that came after the last place together in the last one, whose number is 0.
struct ThreadSums {
  AnyCounter number;  // in the order in which the threads first allocated or freed, from 1
  AnyCounter allocations;
  AnyCounter frees;
  AnyCounter resizes;  // in place; a block that moves is freed and allocated
  AnyCounter requested_bytes;
  AnyCounter freed_bytes;
  AnyCounter foreign_frees;  // of blocks that another thread had allocated
  AnyCounter reused_bytes;   // of its allocations, what had been handed out before
};

struct CurvePoint {
  AnyCounter time_ns;  // since the record began
  AnyCounter live_bytes;
};

inline constexpr std::size_t thread_places = 256;
inline constexpr std::size_t most_points = 1'000;

struct LedgerRecord {
  char magic[8];
  std::int32_t pid;
  std::int32_t parent_pid;
  AnyCounter threads;  // that allocated or freed
  AnyCounter live_bytes;
  AnyCounter live_blocks;
  AnyCounter peak_live_bytes;
  AnyCounter peak_live_blocks;
  AnyCounter peak_ns;           // when the bytes were at their peak
  AnyCounter untracked_blocks;  // allocations that the ledger had no memory for
  AnyCounter missed_frees;      // known blocks that were handed out again without having been freed
  AnyCounter points;
  AnyCounter inherited_bytes;  // live already when the record began, of a forked child
  char reserved[32];
  char executable[1984];
  char provider[1984];  // the library that provides the next malloc
  ThreadSums sums[thread_places];
  CurvePoint curve[most_points];
};
static_assert(offsetof(LedgerRecord, executable) == 128 && offsetof(LedgerRecord, sums) == 4096 &&
              offsetof(LedgerRecord, curve) == 20'480 && sizeof(LedgerRecord) == 36'480);
static_assert(AnyCounter::is_always_lock_free);

}  // namespace ts
