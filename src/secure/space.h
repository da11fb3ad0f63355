// The address space of the hardened heap. Each class of each arena has a region, used for its slabs
// only for the life of the process, and a table of their descriptors elsewhere:
//
//   state | gap | tables, each in a range of its own | ...terabytes... | regions
//
// Nothing is mapped before it is needed. Regions lie where the kernel does not place mappings by
// itself; slabs are mapped there one by one, and the pages around them not at all. So limits on
// address space count slabs only, and a guard page costs no mapping. Where the kernel maps nothing
// at a chosen address (under Valgrind or ThreadSanitizer), the whole range is reserved at once,
// inaccessible, as large as it is granted.
//
// Does not depend on the contents of slabs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "base/platform.h"
#include "secure/size_classes.h"

namespace ts::secure {

struct State;
struct Counts;
inline constexpr std::size_t state_bytes = 8 * min_page_bytes;  // more than sizeof(State)

inline constexpr unsigned max_arenas = 4;
// Regions are numbered by arena and class.
inline constexpr unsigned regions_per_arena = 64;
static_assert(class_count <= regions_per_arena);

// The only data in the library itself, on a page of its own that is made read-only after
// initialisation.
//
// Invariants once is_open: a region has 2^region_shift bytes and a table 2^table_part times fewer;
// there are arenas * regions_per_arena of each, without gaps; state, tables and regions do not
// overlap.
struct alignas(max_os_page_bytes) Roots {
  // Set last. release, pairs with is_open(): the other fields are constant from then on.
  std::atomic<bool> is_open{false};
  bool is_reserved = false;  // the whole range is reserved, and inaccessible at first
  unsigned arenas = 0;
  unsigned page_length = 0;    // log2 of OS page length / min_page_bytes
  unsigned region_shift = 0;   // log2 of the bytes of a region
  std::uintptr_t regions = 0;  // address of the first region
  std::uintptr_t tables = 0;   // address of the first table
  State* state = nullptr;      // zero-filled, which is valid
  Counts* counts = nullptr;    // in the same pages
};
static_assert(sizeof(Roots) == max_os_page_bytes);
extern constinit Roots roots;

// Whether this process is the child of a fork.
inline constinit bool is_forked = false;

// A constant on architectures with a single page size.
inline unsigned page_length() noexcept { return page_lengths == 1 ? 0 : roots.page_length; }
inline std::size_t page_bytes() noexcept { return min_page_bytes << page_length(); }
inline const SizeClass& size_class_of(unsigned number) noexcept {
  return all_size_classes[page_length()][number];
}

inline bool is_open() noexcept { return roots.is_open.load(std::memory_order_acquire); }

// Reserves addresses for everything; false if the kernel refuses (a later call may succeed). The
// caller holds a lock.
bool open_space() noexcept;

inline constexpr unsigned table_part = 5;  // log2 of how much smaller a table is than a region

// Address and length of region `number` and of its table.
inline std::uintptr_t region_begin(unsigned number) noexcept {
  return roots.regions + (std::uintptr_t{number} << roots.region_shift);
}
inline std::size_t region_bytes() noexcept { return std::size_t{1} << roots.region_shift; }
inline std::uintptr_t table_begin(unsigned number) noexcept {
  return roots.tables + (std::uintptr_t{number} << (roots.region_shift - table_part));
}
inline std::size_t table_bytes() noexcept { return region_bytes() >> table_part; }

// The number of the region that contains the address, or UINT32_MAX.
inline unsigned region_of(const void* p) noexcept {
  const std::uintptr_t number = (address_of(p) - roots.regions) >> roots.region_shift;
  return number < roots.arenas * regions_per_arena ? static_cast<unsigned>(number) : UINT32_MAX;
}

// take_pages makes pages of a region or table accessible and zero; give_pages makes them
// inaccessible again, in a call that other libraries may intercept (os.h). False if the kernel
// refuses; then nothing has changed, except that give_pages may have lost the contents.
bool take_pages(std::uintptr_t begin, std::size_t bytes) noexcept;
bool give_pages(std::uintptr_t begin, std::size_t bytes) noexcept;

// Reserves inaccessible whole pages for anything but slabs and tables. They never overlap state,
// tables or regions, even where those are not mapped, so an address in a region is always a slot or
// unused. Null if the kernel refuses.
void* reserve_elsewhere(std::size_t bytes) noexcept;

}  // namespace ts::secure
