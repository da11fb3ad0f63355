// The engine's addresses: of the pages, and of the tables with an element for each page. All are in
// one range, chosen once, of which the process has a prefix of each part. The prefixes grow by
// steps, from 2 MiB of pages on. So a limit on address space, set at any time, counts the prefixes
// alone. The steps go ahead of the need, so that a process at its limit of mappings can still use
// some more memory.
//
// Where the system places nothing at a chosen address (as under valgrind and ThreadSanitizer), the
// whole range is reserved at once, as large as possible.
//
// The range is address space alone; the page heap commits memory in it and knows the free pages.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::engine {

class AddressRange {
 public:
  static constexpr std::size_t max_pages = std::size_t{1} << 29;        // 8 TiB
  static constexpr std::size_t max_heaps = (std::size_t{1} << 17) - 1;  // of each kind (types.h)

  constexpr AddressRange() = default;

  // Makes sure that the first `pages` have addresses, and elements in all tables; false, and
  // perhaps true some other time, if the system refuses.
  bool extend(std::size_t pages) noexcept;
  // Such pages; whole OS pages.
  std::size_t pages() const noexcept { return pages_; }
  // Gives back all beyond the first `pages`, none of which has been used.
  void shrink(std::size_t pages) noexcept;

  // Gives back the memory of the tables for so many pages, whose elements mean nothing; they are zero
  // when they are next used.
  static void forget_tables(std::size_t first_page, std::size_t pages) noexcept;

  // Makes sure that heap `number`, and each before it, has its structure; false as above, or where
  // there are too many.
  bool add_heap(std::uint32_t number) noexcept;

 private:
  // A prefix of it is the process's: accessible, but for the pages.
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
  bool is_reserved_ = false;  // the whole range is the process's, and inaccessible at first
  Part map_;
  Part spans_;
  Part free_bits_;
  Part more_free_bits_;
  Part remote_frees_;
  Part heaps_;
  Part memory_;
};

}  // namespace ts::engine
