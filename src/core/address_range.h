// The engine's address space: the pages, and the tables with one element per page. All of it lies
// in one range, chosen once. The process has mapped a prefix of each part. The prefixes grow in
// steps, from 2 MiB of pages on, so a limit on address space, set at any time, counts only the
// prefixes. The steps run ahead of the need, so that a process at its limit of mappings can still
// use some more memory.
//
// Where the system maps nothing at a chosen address (under valgrind and ThreadSanitizer), the whole
// range is reserved at once, as large as possible.
//
// The range is address space only; the page heap commits memory in it and tracks the free pages.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::engine {

class AddressRange {
 public:
  static constexpr std::size_t max_pages = std::size_t{1} << 29;        // 8 TiB
  static constexpr std::size_t max_heaps = (std::size_t{1} << 17) - 1;  // of each kind (types.h)

  constexpr AddressRange() = default;

  // Ensures that the first `pages` have addresses, and elements in all tables. False if the system
  // refuses; a later call may succeed.
  bool extend(std::size_t pages) noexcept;
  // How many pages have addresses; always whole OS pages.
  std::size_t pages() const noexcept { return pages_; }
  // Unmaps everything beyond the first `pages`, none of which has been used.
  void shrink(std::size_t pages) noexcept;

  // Returns the tables' memory for these pages to the system. Their elements must hold nothing;
  // they read as zero when next used.
  static void forget_tables(std::size_t first_page, std::size_t pages) noexcept;

  // Ensures that the structures of all heaps up to `number` exist; false as above, or if there are
  // too many.
  bool add_heap(std::uint32_t number) noexcept;

 private:
  // The process has mapped a prefix of it; the prefix of the pages themselves is inaccessible.
  struct Part {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
  };

  bool is_placed() const noexcept { return capacity_ != 0; }
  bool place(std::size_t pages) noexcept;
  bool place_freely(std::size_t pages) noexcept;
  bool place_reserved(std::size_t pages) noexcept;
  void lay_out(std::uintptr_t begin, std::size_t capacity, std::size_t heap_capacity) noexcept;
  void forget() noexcept;
  bool extend_by_steps(std::size_t pages) noexcept;
  bool take(std::size_t pages) noexcept;
  bool take_table(Part& part, std::size_t bytes) const noexcept;
  bool take_addresses(std::size_t bytes) noexcept;
  void shrink_table(Part& part, std::size_t bytes) const noexcept;

  std::size_t pages_ = 0;
  std::size_t capacity_ = 0;  // pages for which there is room in the range; 0: not yet chosen
  std::size_t heap_capacity_ = 0;
  bool is_reserved_ = false;  // the whole range is mapped, and inaccessible at first
  Part map_;
  Part spans_;
  Part uses_;
  Part more_free_bits_;
  Part remote_frees_;
  Part heaps_;
  Part memory_;
};

}  // namespace ts::engine
