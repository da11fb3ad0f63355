// libtsmalloc-count.so: preloaded before an allocator, it counts the calls that the program makes.
//
// Why it exists: a preload that was silently ignored looks like a very ordinary allocator. A count
// above zero, with the name of the library that served the calls, proves that the program runs on
// the allocator under test. What it refuses to do: know more of a call than which it was and how
// many bytes it got (a refused request counts as a call, but not its bytes), or fail: without
// TSMALLOC_COUNT_DIR, or with one that cannot be written, the program runs on as it would have; the
// missing file says so. It also never allocates, and leaves errno as it was.
//
// The counts are kept in one 4 KiB file per process, mapped and shared, so that a crash or _exit
// loses nothing.
//
//   offset  0       8     12     16           144              2120           3072            4096
//           | magic | pid | ppid | 16 counters | executable, 0 | provider, 0 | deep_bound, 0 |
//                                   of 64 bits
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "interpose/next.h"

namespace ts {

// One for each Entry, and the bytes requested by the calls that were granted; in the order in the
// file, whose reader is lab/tsmlab/measuring.py.
inline constexpr std::size_t bytes_requested_counter = static_cast<std::size_t>(Entry::count);
inline constexpr std::size_t counter_count = bytes_requested_counter + 1;
// The last one: so many libraries were loaded with RTLD_DEEPBIND. The reader wants the first's name.
inline constexpr std::size_t deep_bindings_counter = 15;

// Notes that a library is about to be loaded with RTLD_DEEPBIND. Never allocates; leaves errno.
void note_deep_binding(const char* library);

struct CountRecord {
  char magic[8];
  std::int32_t pid;
  std::int32_t parent_pid;
  std::atomic<std::uint64_t>
      counters[16];  // any: relaxed additions; the reader comes after the process has ended
  char executable[1976];
  char provider[952];  // the library that provides the next malloc
  // The first library that was loaded with RTLD_DEEPBIND, as its loader named it.
  char deep_bound[1024];
};
static_assert(sizeof(CountRecord) == 4096 && std::atomic<std::uint64_t>::is_always_lock_free);

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
