// Where the floors take their memory from: one large reservation, handed out in 64 KiB pages and
// never taken back, with a table that says what each page holds.
//
// Why it exists: blocks without headers are denser than an allocator with headers can pack them,
// and a floor must not be slower than what it is the floor of; so what is known of a block is found
// by its address. What it refuses to do: return memory, or go on when there is none left; a program
// that asks for so much is not one that a floor tells anything about.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace ts::floor {

constexpr std::size_t page_bytes = 64 << 10;
// A machine that swaps, or kills for lack of memory, measures nothing.
constexpr std::size_t space_bytes = std::size_t{8} << 30;
constexpr std::size_t smallest_alignment = 16;
// Up to here a floor has a way of its own with a request.
constexpr std::size_t small_bytes = 4 << 10;

// const: from the first allocation on, which comes before all threads
inline constinit char* space_begin = nullptr;
inline constinit std::atomic<std::size_t> space_used{0};  // any: nothing is published by it
// The contents of each page, in the floor's own words; 0 where it said nothing. The thread that
// took the page writes it, before it hands out a block there.
inline constinit std::uint32_t page_notes[space_bytes / page_bytes]{};

[[noreturn]] inline void give_up() {
  constexpr char message[] =
      "tsmalloc-floor: out of memory; this program is too large to be run on a floor\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, message, sizeof message - 1);
  __builtin_trap();
}

inline void* refuse() {
  errno = ENOMEM;
  return nullptr;
}

constexpr std::size_t round_up(std::size_t bytes, std::size_t alignment) {
  return (bytes + alignment - 1) & ~(alignment - 1);
}

inline std::uint32_t& note_of(const void* block) {
  return page_notes[static_cast<std::size_t>(static_cast<const char*>(block) - space_begin) /
                    page_bytes];
}

// Zeroed, aligned to a page; `bytes` is a multiple of a page's.
[[gnu::noinline, gnu::cold]] inline char* take_pages(std::size_t bytes) {
  if (space_begin == nullptr) {
    // One page more to align the rest, and one behind, for copies of more than a block's own bytes.
    void* const mapped = mmap(nullptr, space_bytes + 2 * page_bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) give_up();
    const auto begin = reinterpret_cast<std::uintptr_t>(mapped);
    space_begin = reinterpret_cast<char*>(round_up(begin, page_bytes));
  }
  const std::size_t offset = space_used.fetch_add(bytes, std::memory_order_relaxed);
  if (bytes > space_bytes || offset > space_bytes - bytes) give_up();
  return space_begin + offset;
}

// --- large blocks, as the floors have them that do not recycle ----------------------------------

// Whole pages, used once. Their note is their number.
[[gnu::noinline, gnu::cold]] inline void* take_large(std::size_t bytes) {
  if (bytes > space_bytes) return refuse();
  const std::size_t whole = round_up(bytes | 1, page_bytes);
  char* const block = take_pages(whole);
  note_of(block) = static_cast<std::uint32_t>(whole / page_bytes);
  return block;
}

// copy_bytes() for those floors: a small block's exact size is not kept.
inline std::size_t copy_bytes_by_pages(const void* block) {
  const std::size_t pages = note_of(block);
  return pages == 0 ? small_bytes : pages * page_bytes;
}

}  // namespace ts::floor
