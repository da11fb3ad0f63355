// Where the counts are kept: one 4 KiB file per process, mapped and shared, so that a crash or
// _exit loses nothing.
//
// Why it exists: "was the allocator really used?" is answered by a number that survives every way
// for a process to end. What it refuses to do: fail. Without TSMALLOC_COUNT_DIR, or with one that
// cannot be written, the program runs on as it would have; the missing file says so. It also never
// allocates, and leaves errno as it was.
//
//   offset  0         8     12     16                       144                2120 4096
//           | magic   | pid | ppid | 16 counters of 64 bit  | executable, NUL  | provider, NUL    |
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ts {

// The order is the order in the file; the reader is lab/tsmlab/measuring.py.
enum class Counter : unsigned {
  malloc,
  calloc,
  realloc,
  free,
  aligned,  // memalign, aligned_alloc, posix_memalign, valloc, pvalloc
  operator_new,
  operator_delete,
  bytes_requested,  // by the calls that were granted
  count
};
inline constexpr std::size_t counter_count = static_cast<std::size_t>(Counter::count);

struct CountRecord {
  char magic[8];
  std::int32_t pid;
  std::int32_t parent_pid;
  std::atomic<std::uint64_t>
      counters[16];  // any: relaxed additions; the reader comes after the process has ended
  char executable[1976];
  char provider[1976];  // the library that provides the next malloc
};
static_assert(sizeof(CountRecord) == 4096 && std::atomic<std::uint64_t>::is_always_lock_free);

// One call that the program makes.
//
// Its way may lead through us again: libstdc++'s operator new calls malloc, a small allocator's
// calloc calls its malloc. The program made one call, so finish() takes back what was counted in
// between. A bad_alloc thrown through us skips finish(), which then leaves the failed attempts
// counted and nothing else wrong: no state says "inside a call", so none can stay set.
class CountedCall {
 public:
  explicit CountedCall(Counter kind);
  void finish(std::size_t granted_bytes);

 private:
  std::uint64_t
      mine_[counter_count];  // this thread's tally as it is with this call and nothing else
};

}  // namespace ts
