#include "secure/space.h"

#include <bit>

#include "base/check.h"
#include "os/bad_access.h"
#include "os/entropy.h"
#include "os/os.h"
#include "secure/mappings.h"
#include "secure/random.h"

namespace ts::secure {

constinit Roots roots;

namespace {

// With addresses of our choice: 32 GiB per region, and 1 TiB for everything else.
constexpr unsigned placed_shift = 35;
constexpr std::size_t metadata_room = std::size_t{1} << 40;

// If everything has to be reserved, regions are the largest of these that the kernel grants; with
// small ones there is only one arena.
constexpr unsigned max_reserved_shift = 32;
constexpr unsigned min_reserved_shift = 18;  // with 4 KiB pages: a table has two
constexpr unsigned min_shift_of_arenas = 26;

std::size_t mapped_state_bytes() noexcept { return align_up(state_bytes, page_bytes()); }
std::size_t all_regions(unsigned arenas, unsigned shift) noexcept {
  return std::size_t{arenas} * regions_per_arena << shift;
}
// State and tables, with a gap before, between and after them.
std::size_t metadata_bytes(unsigned arenas, unsigned shift) noexcept {
  return 3 * page_bytes() + mapped_state_bytes() + (all_regions(arenas, shift) >> table_part);
}

void lay_out(std::uintptr_t metadata, std::uintptr_t regions, unsigned arenas,
             unsigned shift) noexcept {
  const std::uintptr_t state = metadata + page_bytes();
  roots.state = reinterpret_cast<State*>(state);
  roots.counts = reinterpret_cast<Counts*>(state + state_bytes - sizeof(Counts));
  roots.tables = state + mapped_state_bytes() + page_bytes();
  roots.regions = regions;
  roots.region_shift = shift;
  roots.arenas = arenas;
}

bool take_state() noexcept { return take_pages(address_of(roots.state), mapped_state_bytes()); }

bool place_freely(Random& random) noexcept {
  constexpr unsigned shift = placed_shift;
  const std::size_t regions = all_regions(max_arenas, shift);
  const std::size_t metadata = metadata_bytes(max_arenas, shift);
  for (unsigned attempt = 0;; ++attempt) {
    void* const begin = os::lonely_address(attempt, metadata_room + regions);
    if (begin == nullptr) return false;
    // So that the address of a block does not reveal that of the metadata.
    const std::size_t places = (metadata_room - metadata) / page_bytes();
    const std::size_t place = random.next_64() % places * page_bytes();
    lay_out(address_of(begin) + place, address_of(begin) + metadata_room, max_arenas, shift);
    if (take_state()) return true;
  }
}

bool place_reserved() noexcept {
  roots.is_reserved = true;
  for (unsigned shift = max_reserved_shift; shift >= min_reserved_shift + page_length(); --shift) {
    const unsigned arenas = shift >= min_shift_of_arenas ? max_arenas : 1;
    const std::size_t metadata = metadata_bytes(arenas, shift);
    void* const tables = os::reserve(metadata);
    if (tables == nullptr) continue;
    void* const regions = os::reserve(all_regions(arenas, shift));
    if (regions != nullptr) {
      lay_out(address_of(tables), address_of(regions), arenas, shift);
      if (take_state()) return true;
      os::unmap_unused(regions, all_regions(arenas, shift));
    }
    os::unmap_unused(tables, metadata);
  }
  roots.is_reserved = false;
  return false;
}

// Whether a range does not overlap state, tables and regions. (If everything is reserved, it is
// mapped, so the kernel gives none of it away.)
bool is_elsewhere(std::uintptr_t begin, std::size_t bytes) noexcept {
  const std::uintptr_t end = region_begin(roots.arenas * regions_per_arena);
  return roots.is_reserved || begin >= end || begin + bytes <= address_of(roots.state);
}

}  // namespace

bool open_space() noexcept {
  const std::size_t times = os::page_bytes() / min_page_bytes;
  require(std::has_single_bit(times) && times <= max_os_page_bytes / min_page_bytes,
          "the system has pages of a length that no kernel for this machine has", nullptr);
  roots.page_length = static_cast<unsigned>(std::countr_zero(times));
  Random random{};
  if (!place_freely(random) && !place_reserved()) return false;
  roots.is_open.store(true, std::memory_order_release);
  os::make_read_only(&roots, sizeof roots);
  return true;
}

bool take_pages(std::uintptr_t begin, std::size_t bytes) noexcept {
  auto* const at = reinterpret_cast<void*>(begin);
  return roots.is_reserved ? os::commit(at, bytes) : os::map_at(at, bytes);
}

bool give_pages(std::uintptr_t begin, std::size_t bytes) noexcept {
  auto* const at = reinterpret_cast<void*>(begin);
  return roots.is_reserved ? os::protect(at, bytes) : os::unmap(at, bytes);
}

// The kernel allocates downwards from the stack and reaches the regions only when everything above
// is taken. Below them, any place will do.
void* reserve_elsewhere(std::size_t bytes) noexcept {
  void* const found = os::reserve(bytes);
  if (found == nullptr || is_elsewhere(address_of(found), bytes)) return found;
  os::unmap_unused(found, bytes);
  constexpr std::uintptr_t lowest = std::uintptr_t{1} << 40;  // above programs and their break
  const std::uintptr_t most = address_of(roots.state);
  if (bytes >= most - lowest) return nullptr;
  Random random{};
  for (unsigned attempt = 0; attempt < 8; ++attempt) {
    const std::uintptr_t offset = random.next_64() % (most - lowest - bytes);
    auto* const begin = reinterpret_cast<void*>(lowest + offset / page_bytes() * page_bytes());
    if (os::reserve_at(begin, bytes)) return begin;
  }
  return nullptr;
}

}  // namespace ts::secure
