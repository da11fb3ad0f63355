// The samples of the heap profile: blocks in use whose call stacks are known, and sums over all
// that there were, by call stack.
//
// A sampled small block lies in a slab of a heap of its own, the sample heap. That is an arena by
// its number, so the free of such a block takes the slow path of a free into an arena. No other
// free pays. The span of a sampled large block says that it is one.
//
// Estimates are Horvitz and Thompson's (1952): a sample that was taken with probability p stands
// for
// 1 / p blocks. A row sums them for one call stack and about one size, so that its samples have
// about one p. All is in mappings of its own, which tools/inspect may read at any time (`changes`).
#pragma once

#include "core/page_map.h"
#include "features/profile/number_index.h"
#include "os/mutex.h"
#include "unwind/unwind.h"

namespace ts::engine {

// The rows, samples in use and call stacks; the sample heap.
inline constinit Mutex samples_lock;

// An array in reserved address space, of which a prefix is in use.
template <class T>
struct Growing {
  T* items = nullptr;
  std::uint32_t count = 0;
  std::uint32_t committed = 0;  // items of which the memory may be touched
};

struct Estimate {
  std::uint64_t samples = 0;
  double blocks = 0;
  double bytes = 0;  // as requested
};

// Sums over samples in use of what each one stands for, and of its squares (stranded_bytes.h).
struct Stranded {
  double bytes = 0;
  double squares = 0;
};

struct SampleRow {
  std::uint64_t interval = 0;
  std::uint64_t size_class = 0;       // blocks of about so many bytes, and of no more
  std::uint32_t stack = 0;            // number of its first word
  std::uint64_t requested_bytes = 0;  // of all samples: for means
  std::uint64_t block_bytes = 0;
  std::uint64_t born_ms = 0;        // the sum over those in use
  std::uint64_t weighed_bytes = 0;  // for how many block_bytes `weight` was computed last
  double weight = 0;                // how many blocks such a sample stands for
  Estimate allocated;
  Estimate in_use;
  Estimate at_peak;
  Stranded stranded;  // of a copy that a profile is written from
};

// A sample in use.
struct Sample {
  const void* block = nullptr;
  std::uint64_t requested_bytes = 0;
  std::uint64_t block_bytes = 0;
  std::uint32_t row = 0;
  std::uint32_t born_ms = 0;  // since `began_ms`
  void* placeholder =
      nullptr;  // the block that malloc would have returned (stranded_bytes.h), or null
};

// Words of call stacks: a header, then its addresses, innermost first.
struct StackHeader {
  std::uint32_t hash;
  std::uint16_t depth;
  std::uint16_t is_whole;
};
static_assert(sizeof(StackHeader) == sizeof(std::uint64_t));

struct Samples {
  // Odd while they change. A reader in another process that finds it even and the same, before and
  // after, has read what is consistent.
  std::atomic<std::uint32_t> changes{0};
  std::uint64_t process_began_ms = 0;
  std::uint64_t began_ms = 0;
  std::uint64_t paused_ms = 0;     // since then, until `paused_at_ms`
  std::uint64_t paused_at_ms = 0;  // 0 while sampling is on
  std::uint64_t interval = 0;      // the last one
  bool are_taken = false;          // with their stacks, from now on
  std::uint64_t dropped = 0;       // samples without room
  std::uint64_t placeholder_bytes = 0;
  double live_bytes = 0;  // estimates, of all rows
  double peak_bytes = 0;
  std::uint64_t peak_ms = 0;
  Growing<SampleRow> rows;
  Growing<Sample> in_use;
  Growing<std::uint64_t> stacks;
  NumberIndex row_index;
  NumberIndex sample_index;
  NumberIndex stack_index;
};
inline constinit Samples samples TS_GUARDED_BY(samples_lock);

// Makes room for the first samples, once; false if there is none.
bool open_samples() noexcept TS_REQUIRES(samples_lock);

// Keeps a block as a sample, with its placeholder if it has one, and returns how many blocks it
// stands for; 0, and counted as dropped, if there is no room.
double note_sample(const void* block, std::size_t bytes, std::size_t block_bytes,
                   std::uint64_t interval, const os::UnwoundStack& stack,
                   void* placeholder = nullptr) noexcept TS_REQUIRES(samples_lock);

// Whether samples have their call stacks; not where a tracer takes them by itself. relaxed: no data
// depends on it.
inline constinit Atomic<bool> takes_stacks{true};

// The stack of a sample, or none where a tracer takes it. `caller` as for os::unwind().
void take_stack(os::UnwoundStack& stack, const void* caller) noexcept;
// Tells tracers of a sample; without a lock.
void trace_alloc(const void* p, std::size_t bytes, double weight) noexcept;

// To be called before a sampled block is freed, or becomes another; without a lock. Frees its
// placeholder.
[[gnu::cold]] void forget_sample(const void* p) noexcept;

// The bytes that were requested of a sampled block; 0 of others.
[[gnu::cold]] std::size_t requested_bytes_of_sample(const void* p) noexcept;

}  // namespace ts::engine
