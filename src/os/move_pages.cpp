// Moving pages to other addresses with mremap(2). Kernels differ in what they can move.
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "os/mapping.h"
#include "os/os.h"
#include "os/system_call.h"

namespace ts::os {
namespace {

bool is_zero(const std::byte* page) noexcept {
  return *page == std::byte{0} && std::memcmp(page, page + 1, page_bytes() - 1) == 0;
}

enum class Moving : std::uint32_t {
  unknown,
  never,
  // Before Linux 6.17. A range of several mappings is refused, after the destination was unmapped.
  // To keep a block in one mapping, that mapping must be as long as the block may grow; so its old
  // place has to be unmapped, and mapped again.
  one_mapping,
  // From 6.17 on, each mapping of a range is moved separately, and the old place stays mapped
  // (MREMAP_DONTUNMAP, Linux 5.7).
  each_mapping,
};

constexpr int moving = MREMAP_MAYMOVE | MREMAP_FIXED;
constexpr int moving_pages = moving | MREMAP_DONTUNMAP;

// Seen by others (os.h).
bool remap(void* from, std::size_t bytes, std::size_t to_bytes, int flags, void* to) noexcept {
  const ErrnoKept kept;
  return ::mremap(from, bytes, to_bytes, flags, to) != MAP_FAILED;
}

// For memory that no program has seen.
bool try_remap(void* from, std::size_t bytes, std::size_t to_bytes, int flags, void* to) noexcept {
  return !is_error(call(SYS_mremap, from, bytes, to_bytes, flags, to));
}

// Whether memory there can still be discarded. qemu-user (at least version 7.2) forgets the memory
// from which MREMAP_DONTUNMAP moved pages, and then silently discards nothing.
bool reads_as_zero_when_discarded(std::byte* page) noexcept {
  *page = std::byte{1};
  return discard_unseen(page, page_bytes()) && *page == std::byte{0};
}

// Tried on memory of its own; unknown if there is none. If a refused call may have unmapped memory,
// it is not touched: another thread may have mapped memory there since.
Moving try_moving() noexcept {
  const std::size_t page = page_bytes();
  auto* const memory = static_cast<std::byte*>(map(7 * page));
  if (memory == nullptr) return Moving::unknown;
  std::byte* const to = memory + 2 * page;
  std::byte* const next_to = memory + 4 * page;
  std::byte* const last = memory + 6 * page;
  Moving found = Moving::never;
  // Two mappings at once.
  if (call(SYS_mprotect, memory + page, page, PROT_READ) != 0) {
    unmap_unused(memory, 7 * page);
    return Moving::unknown;
  }
  if (try_remap(memory, 2 * page, 2 * page, moving_pages, to)) {
    if (reads_as_zero_when_discarded(memory)) found = Moving::each_mapping;
    unmap_unused(to, 2 * page);
  }
  unmap_unused(memory, 2 * page);
  if (found == Moving::never && try_remap(last, page, 2 * page, moving, next_to)) {
    if (!place(last, page, PROT_READ | PROT_WRITE, 0)) return Moving::unknown;
    if (reads_as_zero_when_discarded(last)) found = Moving::one_mapping;
  }
  if (found != Moving::never) unmap_unused(next_to, 2 * page);
  unmap_unused(last, page);
  return found;
}

// relaxed: every thread finds the same, until addresses were lost
constinit std::atomic<Moving> known{Moving::unknown};

// Before Linux 6.17: a refused call may have unmapped the destination.
bool move_one_mapping(void* from, std::size_t bytes, void* to, std::size_t to_bytes,
                      bool& is_left) noexcept {
  const bool has_moved = remap(from, bytes, to_bytes, moving, to);
  is_left = has_moved ? place(from, bytes, PROT_READ | PROT_WRITE, MAP_NORESERVE)
                      : place(to, to_bytes, PROT_READ | PROT_WRITE, MAP_NORESERVE);
  return has_moved;
}

bool is_mapped(const std::byte* page) noexcept {
  unsigned char resident = 0;
  return call(SYS_mincore, page, page_bytes(), &resident) == 0;
}

bool move_each_mapping(void* from, std::size_t bytes, void* to) noexcept {
  if (remap(from, bytes, bytes, moving_pages, to)) return true;
  // A mapping may be refused after others have moved: at the limit of mappings, or because it
  // belongs to userfaultfd or is sealed. Copies the moved pages back. A page that is not zero did
  // not move, and another thread may have mapped memory at its destination.
  const std::size_t page = page_bytes();
  for (std::size_t at = 0; at < bytes; at += page) {
    auto* const left = static_cast<std::byte*>(from) + at;
    auto* const moved = static_cast<std::byte*>(to) + at;
    if (!is_zero(left) || !is_mapped(moved)) continue;  // a hole
    if (!is_zero(moved)) std::memcpy(left, moved, page);
  }
  return false;
}

// Moves locked pages. Those that MREMAP_DONTUNMAP moves would be counted twice until the process
// ends (Linux 6.18), so the old place is unmapped, and mapped again.
bool move_locked(void* from, std::size_t bytes, void* to, bool& is_left) noexcept {
  constexpr int readable = PROT_READ | PROT_WRITE;
  if (remap(from, bytes, bytes, moving, to)) {
    is_left = place(from, bytes, readable, MAP_NORESERVE);
    // After mlockall(2), new mappings are locked and resident.
    if (is_left && call(SYS_munlock, from, bytes) == 0) discard_unseen(from, bytes);
    return true;
  }
  // As in move_each_mapping().
  const std::size_t page = page_bytes();
  for (std::size_t at = 0; at < bytes; at += page) {
    auto* const left = static_cast<std::byte*>(from) + at;
    if (!is_mapped(left) && place(left, page, readable, MAP_NORESERVE))
      std::memcpy(left, static_cast<std::byte*>(to) + at, page);
  }
  return is_left = false;
}

}  // namespace

// msync(2) refuses this if a part is locked, and has no effect otherwise.
bool is_locked(const void* begin, std::size_t bytes) noexcept {
  return call(SYS_msync, begin, bytes, MS_ASYNC | MS_INVALIDATE) == -EBUSY;
}

bool can_move_pages() noexcept {
  Moving found = known.load(std::memory_order_relaxed);
  if (found == Moving::unknown) {
    found = try_moving();
    if (found != Moving::unknown) known.store(found, std::memory_order_relaxed);
  }
  return found > Moving::never;
}

bool move_pages(void* from, std::size_t bytes, void* to, std::size_t to_bytes,
                bool& is_left) noexcept {
  bool has_moved = false;
  is_left = true;
  const Moving way = known.load(std::memory_order_relaxed);
  if (way == Moving::one_mapping) has_moved = move_one_mapping(from, bytes, to, to_bytes, is_left);
  if (way == Moving::each_mapping) {
    if (is_locked(from, bytes)) {
      has_moved = move_locked(from, bytes, to, is_left);
    } else {
      has_moved = is_left = move_each_mapping(from, bytes, to);
    }
  }
  if (!is_left) known.store(Moving::never, std::memory_order_relaxed);
  return has_moved;
}

}  // namespace ts::os
