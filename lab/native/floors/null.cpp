// libtsmalloc-floor-null.so: what calling an allocator costs that does nothing. A measuring
// instrument and not an allocator.
//
// Why it exists: no shared library can serve faster than by returning a constant, so the distance
// to this one is what there is to be gained at all. After the first requests of a thread, malloc
// returns the same block for all sizes up to 4 KiB, and free returns. What it refuses to do: keep
// what a program stores. Only a program whose blocks need not be different memory runs on it, and
// bench/workloads.toml names those; its memory says nothing.
#include "floors/space.h"

namespace ts::floor {
namespace {

// What a program allocates before its work begins (threads, buffers, tables) has to last, so a
// thread's first requests get memory of their own.
constexpr std::uint32_t requests_with_own_memory = 1024;

struct Null {
  // own: requests below this get the block. 0 as long as memory of their own is due: the test that
  // malloc needs anyway finds that, too.
  std::size_t limit_bytes;
  void* block;
  char* next;  // own: what is left for the first requests
  char* end;
  std::uint32_t requests;
};
constinit thread_local Null null{};

[[gnu::noinline, gnu::cold]] void* allocate_slow(std::size_t bytes) {
  if (bytes > small_bytes) return take_large(bytes);
  if (++null.requests == requests_with_own_memory) {
    null.block = take_pages(page_bytes);
    null.limit_bytes = small_bytes + 1;
  }
  const std::size_t stride = round_up(bytes | 1, smallest_alignment);
  if (stride > static_cast<std::size_t>(null.end - null.next)) {
    null.next = take_pages(page_bytes);
    null.end = null.next + page_bytes;
  }
  void* const block = null.next;
  null.next += stride;
  return block;
}

inline void* allocate(std::size_t bytes) {
  if (bytes < null.limit_bytes) [[likely]]
    return null.block;
  return allocate_slow(bytes);
}

void* allocate_aligned(std::size_t, std::size_t bytes) { return take_large(bytes); }

inline void release(void*) {}

std::size_t copy_bytes(const void* block) { return copy_bytes_by_pages(block); }

}  // namespace
}  // namespace ts::floor

#include "floors/entry_points.h"
