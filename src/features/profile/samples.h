// The samples of the heap profile: blocks in use with their call stacks, and sums over all samples
// ever taken, by call stack.
//
// A sampled small block lies in a slab of a heap of its own, the sample heap. That heap's number is
// an arena's, so a free of such a block takes the slow path of a free into an arena. No other free
// pays. The span of a sampled large block is marked as sampled.
//
// Estimates are by Horvitz and Thompson (1952): a sample that was taken with probability p
// represents 1 / p blocks. A row sums them for one call stack and about one size, so that its
// samples have about the same p. Everything is in mappings of its own, which tools/inspect may read
// at any time (`changes`).
#pragma once

#include "core/page_map.h"
#include "features/profile/number_index.h"
#include "os/mutex.h"
#include "unwind/unwind.h"

namespace ts::engine {

// Guards the rows, the samples in use and the call stacks; and the sample heap.
inline constinit Mutex samples_lock;

// An array in reserved address space; a prefix of it is in use.
template <class T>
struct Growing {
  T* items = nullptr;
  std::uint32_t count = 0;
  std::uint32_t committed = 0;  // items whose memory may be touched
};

struct Estimate {
  std::uint64_t samples = 0;
  double blocks = 0;
  double bytes = 0;  // as requested
};

// Sums over samples in use, of what each one represents, and of its squares (stranded_bytes.h).
struct Stranded {
  double bytes = 0;
  double squares = 0;
};

struct SampleRow {
  std::uint64_t interval = 0;
  std::uint64_t size_class = 0;       // the largest block of the row
  std::uint32_t stack = 0;            // index of its first word
  std::uint64_t requested_bytes = 0;  // of all samples: for averages
  std::uint64_t block_bytes = 0;
  std::uint64_t born_ms = 0;        // sum over those in use
  std::uint64_t weighed_bytes = 0;  // the block_bytes that `weight` was computed for
  double weight = 0;                // how many blocks such a sample represents
  Estimate allocated;
  Estimate in_use;
  Estimate at_peak;
  Stranded stranded;  // only in a copy that a profile is written from
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
  // Odd while they are being changed. If a reader in another process finds the same even number
  // before and after, what it read is consistent.
  std::atomic<std::uint32_t> changes{0};
  std::uint64_t process_began_ms = 0;
  std::uint64_t began_ms = 0;
  std::uint64_t paused_ms = 0;     // since then, until `paused_at_ms`
  std::uint64_t paused_at_ms = 0;  // 0 while sampling is on
  std::uint64_t interval = 0;      // the last one
  bool are_taken = false;          // with call stacks, from now on
  std::uint64_t dropped = 0;       // samples for which there was no room
  std::uint64_t placeholder_bytes = 0;
  double live_bytes = 0;  // estimate, over all rows
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
// represents; if there is no room, counts it as dropped and returns 0.
double note_sample(const void* block, std::size_t bytes, std::size_t block_bytes,
                   std::uint64_t interval, const os::UnwoundStack& stack,
                   void* placeholder = nullptr) noexcept TS_REQUIRES(samples_lock);

// Whether samples have call stacks; not if a tracer takes those itself. relaxed: no data depends on
// it.
inline constinit Atomic<bool> takes_stacks{true};

// Takes the stack of a sample, or none if a tracer takes it. `caller` as for os::unwind().
void take_stack(os::UnwoundStack& stack, const void* caller) noexcept;
// Reports a sample to tracers; without a lock.
void trace_alloc(const void* p, std::size_t bytes, double weight) noexcept;

// To be called before a sampled block is freed or resized; without a lock. Frees its placeholder.
[[gnu::cold]] void forget_sample(const void* p) noexcept;

// How many bytes were requested for a sampled block; 0 for others.
[[gnu::cold]] std::size_t requested_bytes_of_sample(const void* p) noexcept;

}  // namespace ts::engine
