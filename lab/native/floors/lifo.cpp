// libtsmalloc-floor-lifo.so: what it costs to use the block again that was freed last. A measuring
// instrument and not an allocator.
//
// Why it exists: a list per size and thread, without anything that an allocator needs besides, is
// the least that can serve any program for long: the block that was freed last is the one most
// likely in the cache. What it refuses to do: anything about memory. Blocks stay in the size and
// with the thread that freed them, for ever, and its memory says nothing.
//
//   allocate -> pop                    hit: return
//               -> carve               the next fresh block of the class's page
//            -> allocate_large -> pop  the same with one class for each power of two
//   release  -> note_of               the class, by the page; push
#include <bit>

#include "floors/space.h"

namespace ts::floor {
namespace {

// Classes of small blocks are their bytes / 16; above, there is one for each power of two.
constexpr std::size_t small_classes = small_bytes / smallest_alignment + 1;
constexpr std::size_t classes = small_classes + std::bit_width(space_bytes);

struct Free {
  Free* next;
};

struct Lifo {
  Free* free[classes];  // own: what this thread freed, last first
  char* next[classes];  // own: the fresh rest of the page that the class's blocks are carved from
  char* end[classes];
};
constinit thread_local Lifo lifo{};

constexpr std::size_t class_bytes(std::size_t index) {
  if (index >= small_classes) return std::size_t{1} << (index - small_classes);
  return index == 0 ? smallest_alignment : index * smallest_alignment;
}

// In a register: processors forward stores more slowly to an address with a segment and an index. A
// block's way from free to malloc is nothing but such forwarding.
inline Lifo& own() {
  Lifo* own = &lifo;
  asm("" : "+r"(own));
  return *own;
}

[[gnu::noinline, gnu::cold]] void* carve(Lifo& own, std::size_t index) {
  const std::size_t bytes = class_bytes(index);
  if (bytes > static_cast<std::size_t>(own.end[index] - own.next[index])) {
    const std::size_t pages = round_up(bytes, page_bytes);
    char* const begin = take_pages(pages);
    note_of(begin) = static_cast<std::uint32_t>(index);
    own.next[index] = begin;
    own.end[index] = begin + pages;
  }
  void* const block = own.next[index];
  own.next[index] += bytes;
  return block;
}

inline void* pop(std::size_t index) {
  Lifo& mine = own();
  Free* const block = mine.free[index];
  if (block == nullptr) [[unlikely]]
    return carve(mine, index);
  mine.free[index] = block->next;
  return block;
}

[[gnu::noinline]] void* allocate_large(std::size_t bytes) {
  if (bytes > space_bytes) return refuse();
  return pop(small_classes + static_cast<std::size_t>(std::bit_width(bytes - 1)));
}

inline void* allocate(std::size_t bytes) {
  if (bytes > small_bytes) [[unlikely]]
    return allocate_large(bytes);
  return pop((bytes + smallest_alignment - 1) / smallest_alignment);
}

// Blocks lie at multiples of their bytes in their page, so a power of two is its own alignment.
void* allocate_aligned(std::size_t alignment, std::size_t bytes) {
  if (bytes > space_bytes) return refuse();
  return allocate(std::bit_ceil(bytes > alignment ? bytes : alignment));
}

inline void release(void* block) {
  Free*& first = own().free[note_of(block)];
  auto* const freed = static_cast<Free*>(block);
  freed->next = first;
  first = freed;
}

std::size_t copy_bytes(const void* block) { return class_bytes(note_of(block)); }

}  // namespace
}  // namespace ts::floor

#include "floors/entry_points.h"
