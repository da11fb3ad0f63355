// libtsmalloc-floor-bump.so: what it costs to hand out different memory each time, and never look
// at it again. A measuring instrument and not an allocator.
//
// Why it exists: advancing a pointer is the least that a malloc can do that returns a new block,
// and nothing is the least that a free can do. Each thread goes round in a ring, so that what is
// measured is work in the caches and not the kernel's zeroing of ever new pages. What it refuses to
// do: keep a block for longer than one turn of its ring. Only a program whose blocks die young runs
// on it, and bench/workloads.toml names those; its memory says nothing.
//
//   a thread's piece   | first requests | ring .................................. |
//                      begin            turn                  next -->           end, then turn
#include "floors/space.h"

namespace ts::floor {
namespace {

// What a program allocates before its work begins (threads, buffers, tables) has to last, so a
// thread's first bytes are not part of the ring.
constexpr std::size_t lasting_bytes = 1 << 20;
// Small enough for the second-level cache: in a ring of 64 MiB, which is not, ever new lines made this
// slower than the lifo floor in every workload. What lives for longer is handed out twice.
constexpr std::size_t ring_bytes = 512 << 10;

struct Bump {
  char* next;  // own, all three: aligned to 16
  char* end;
  char* turn;
};
constinit thread_local Bump bump{};

[[gnu::noinline, gnu::cold]] void* allocate_slow(std::size_t bytes);

inline void* allocate(std::size_t bytes) {
  char* const block = bump.next;
  // Both ends are aligned, so that what fits still fits when it is rounded up. Nothing fits into a
  // piece that is not there yet, not even nothing.
  if (bytes > small_bytes || bytes >= static_cast<std::size_t>(bump.end - block)) [[unlikely]]
    return allocate_slow(bytes);
  bump.next = block + round_up(bytes, smallest_alignment);
  return block;
}

void* allocate_slow(std::size_t bytes) {
  if (bytes > small_bytes) return take_large(bytes);
  if (bump.turn == nullptr) {
    bump.next = take_pages(lasting_bytes + ring_bytes);
    bump.turn = bump.next + lasting_bytes;
    bump.end = bump.turn + ring_bytes;
  } else {
    bump.next = bump.turn;
  }
  return allocate(bytes);
}

void* allocate_aligned(std::size_t, std::size_t bytes) { return take_large(bytes); }

inline void release(void*) {}

std::size_t copy_bytes(const void* block) { return copy_bytes_by_pages(block); }

}  // namespace
}  // namespace ts::floor

#include "floors/entry_points.h"
