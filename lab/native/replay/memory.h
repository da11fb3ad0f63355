// Memory: replay's own arrays, which are in mappings of their own, and what the process has.
//
// The allocator under test must get the plan's calls and nothing else, and replay's own memory must
// not be counted as the allocator's. Shared mappings count as shared memory, never as anonymous; a
// forked child shares them. Private mappings, which a fork copies, are made resident at once, with
// small pages, so that their size is known: own_bytes(). Replay exits if it gets no memory for its
// tables.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "common/system.h"

namespace ts::replay {

enum class Backing : std::uint8_t { shared, resident_private, private_on_demand };

// Resident anonymous bytes of replay's own. relaxed: a sum that is read for a report, by a thread
// that has waited for all that add to it, or as an estimate.
inline constinit std::atomic<std::uint64_t> own_resident{0};
inline std::uint64_t own_bytes() { return own_resident.load(std::memory_order_relaxed); }

// Private pages mapped since remember_own(): for up to some thousand mappings, including those
// unmapped by now.
struct PageRange {
  std::uint64_t begin;
  std::uint64_t end;
};
inline constexpr std::size_t max_remembered = 4096;
inline constinit PageRange* remembered = nullptr;
inline constinit std::atomic<std::size_t> remembered_count{0};  // relaxed: read at the end

inline std::span<const PageRange> own_ranges() {
  const std::size_t count = remembered_count.load(std::memory_order_relaxed);
  return {remembered, std::min(count, max_remembered)};
}

inline std::size_t page_bytes() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

inline std::size_t whole_pages(std::size_t bytes) {
  return (bytes / page_bytes() + 1) * page_bytes();  // at least one
}

// Makes part of private pages resident, and counts it as own.
inline void make_resident(void* pages, std::size_t bytes) {
  const std::size_t page = page_bytes();
  auto* const first = static_cast<volatile unsigned char*>(pages);
  for (std::size_t i = 0; i < bytes; i += page) first[i] = 0;
  own_resident.fetch_add((bytes + page - 1) / page * page, std::memory_order_relaxed);
}

// Zeroed pages; exits when there are none.
inline void* map_pages(std::size_t bytes, Backing backing) {
  const std::size_t rounded = whole_pages(bytes);
  const int kind = backing == Backing::shared ? MAP_SHARED : MAP_PRIVATE;
  void* const mapped =
      mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_NORESERVE | kind, -1, 0);
  if (mapped == MAP_FAILED) fail_internal("out of memory for replay's own tables", errno);
  if (backing != Backing::shared) {
    madvise(mapped, rounded, MADV_NOHUGEPAGE);
    if (remembered != nullptr) {
      const std::size_t place = remembered_count.fetch_add(1, std::memory_order_relaxed);
      const auto begin = reinterpret_cast<std::uintptr_t>(mapped);
      if (place < max_remembered) remembered[place] = {begin, begin + rounded};
    }
  }
  if (backing == Backing::resident_private) make_resident(mapped, rounded);
  return mapped;
}

inline void unmap_pages(void* pages, std::size_t bytes, Backing backing) {
  const std::size_t rounded = whole_pages(bytes);
  munmap(pages, rounded);
  if (backing == Backing::resident_private) {
    own_resident.fetch_sub(rounded, std::memory_order_relaxed);
  }
}

inline void remember_own() {
  constexpr std::size_t bytes = max_remembered * sizeof(PageRange);
  remembered = static_cast<PageRange*>(map_pages(bytes, Backing::shared));
}

// An array that begins as zero bytes, which must be a valid T.
template <class T>
class Mapped {
 public:
  Mapped(std::size_t count, Backing backing)
      : items_{static_cast<T*>(map_pages(count * sizeof(T), backing))},
        count_{count},
        backing_{backing} {}
  ~Mapped() { unmap_pages(items_, count_ * sizeof(T), backing_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  T& operator[](std::size_t index) const { return items_[index]; }
  T* begin() const { return items_; }
  T* end() const { return items_ + count_; }
  std::size_t size() const { return count_; }

 private:
  static_assert(std::is_trivially_destructible_v<T>);
  T* items_;
  std::size_t count_;
  Backing backing_;
};

// How much memory the process has: what an allocator keeps from the system is one of its two costs.
struct Memory {
  std::int64_t resident = 0;   // anonymous bytes, without replay's own
  std::int64_t lazy_free = 0;  // the part returned by MADV_FREE and not yet taken
};

// smaps_rollup walks the page tables; the kernel's counters may be off by some hundred kilobytes.
inline Memory memory_now() {
  constexpr std::int64_t kib = 1024;
  Memory memory;
  std::int64_t anonymous = 0;
  PieceReader lines{"/proc/self/smaps_rollup"};
  while (const char* const line = lines.next('\n')) {
    if (const std::int64_t found = number_after(line, "Anonymous:"); found >= 0) anonymous = found;
    if (const std::int64_t found = number_after(line, "LazyFree:"); found >= 0) {
      memory.lazy_free = found * kib;
    }
  }
  memory.resident = anonymous * kib - static_cast<std::int64_t>(own_bytes());
  return memory;
}

}  // namespace ts::replay
