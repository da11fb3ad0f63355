// The addresses of the hardened heap. Each class of each arena has a region of its own, for its
// slabs only, as long as the process lives; and a table elsewhere, with the descriptors of those.
//
//   state | gap | tables, each in a range of its own | ...terabytes... | regions
//
// Nothing of it is mapped before it is needed: regions lie where the system places no mapping by
// itself, a slab is mapped at its place, and the pages around it are not mapped at all. So limits
// on address space count slabs only, and a guard page costs no mapping. Where the system maps
// nothing at a chosen address, all of it is reserved at once, inaccessible, as large as it is
// granted. (Valgrind and ThreadSanitizer are such places.)
//
// It does not depend on the contents of slabs.
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
inline constexpr std::size_t state_bytes = 8 * min_page_bytes;  // of which a State has less

inline constexpr unsigned max_arenas = 4;
// Regions are numbered by arena and class.
inline constexpr unsigned regions_per_arena = 64;
static_assert(class_count <= regions_per_arena);

// The only data in the library itself, on a page of its own that is read-only once it is written.
//
// Invariants, once is_open: a region has 2^region_shift bytes and a table 2^table_part times fewer;
// arenas * regions_per_arena of each, without a gap; state, tables and regions have no address in
// common.
struct alignas(max_os_page_bytes) Roots {
  // Set last. release, pairs with is_open(): the other fields are const from then on.
  std::atomic<bool> is_open{false};
  bool is_reserved = false;  // all of it is the process's, and inaccessible at first
  unsigned arenas = 0;
  unsigned page_length = 0;    // of OS pages: logarithm of how much longer than min_page_bytes
  unsigned region_shift = 0;   // logarithm of the bytes of a region
  std::uintptr_t regions = 0;  // where the first one begins
  std::uintptr_t tables = 0;   // likewise, of the tables
  State* state = nullptr;      // zero-filled, which is valid
  Counts* counts = nullptr;    // in the same pages
};
static_assert(sizeof(Roots) == max_os_page_bytes);
extern constinit Roots roots;

// Whether the process began with a fork.
inline constinit bool is_forked = false;

// A constant where a kind of machine has pages of one length.
inline unsigned page_length() noexcept { return page_lengths == 1 ? 0 : roots.page_length; }
inline std::size_t page_bytes() noexcept { return min_page_bytes << page_length(); }
inline const SizeClass& size_class_of(unsigned number) noexcept {
  return all_size_classes[page_length()][number];
}

inline bool is_open() noexcept { return roots.is_open.load(std::memory_order_acquire); }

// Finds addresses for everything; false, and perhaps true some other time, if the system refuses.
// Called under one lock.
bool open_space() noexcept;

inline constexpr unsigned table_part = 5;  // logarithm of how much smaller a table is than a region

// Where region `number` begins, and its table; how long both are.
inline std::uintptr_t region_begin(unsigned number) noexcept {
  return roots.regions + (std::uintptr_t{number} << roots.region_shift);
}
inline std::size_t region_bytes() noexcept { return std::size_t{1} << roots.region_shift; }
inline std::uintptr_t table_begin(unsigned number) noexcept {
  return roots.tables + (std::uintptr_t{number} << (roots.region_shift - table_part));
}
inline std::size_t table_bytes() noexcept { return region_bytes() >> table_part; }

// The number of the region that an address is in; one that does not exist if it is in none.
inline unsigned region_of(const void* p) noexcept {
  const std::uintptr_t number = (address_of(p) - roots.regions) >> roots.region_shift;
  return number < roots.arenas * regions_per_arena ? static_cast<unsigned>(number) : UINT32_MAX;
}

// Makes pages of a region or table memory that reads as zero; makes them inaccessible again, which
// is seen by others (os.h). False if the system refuses, with nothing changed but, in the second
// case, contents.
bool take_pages(std::uintptr_t begin, std::size_t bytes) noexcept;
bool give_pages(std::uintptr_t begin, std::size_t bytes) noexcept;

// Inaccessible addresses for what is no slab and no table, whole pages. They have none in common
// with state, tables and regions, also where those are not mapped: an address in a region is a
// slot's or unused. Null if the system refuses.
void* reserve_elsewhere(std::size_t bytes) noexcept;

}  // namespace ts::secure
