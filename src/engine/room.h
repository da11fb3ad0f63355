// The addresses of the engine: of the granules, and of the tables with an element for each of them.
// All are in one range, chosen once, of which the process has a prefix of each part; the prefixes
// grow by steps, from 16 MiB of granules on. So a limit on address space counts what is needed,
// whenever it was set; and the steps are taken ahead of the need, so that a process that has as
// many mappings as it may can still use some more memory than it does.
//
// Where the system places nothing at an address of our choice (under valgrind and ThreadSanitizer,
// for two), the whole range is reserved at once, as large as it is granted.
//
// It refuses to know what is free: granules here are address space, and page_heap.cpp commits them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/layout.h"

namespace ts::engine {

class Room {
 public:
  static constexpr std::size_t max_granules = std::size_t{1} << 29;  // 8 TiB
  static constexpr std::size_t max_heaps = (std::size_t{1} << 20) - 1;

  constexpr Room() = default;

  // Makes sure that the first `granules` have addresses, and elements in all tables; false, and
  // perhaps true some other time, if the system refuses.
  bool extend(std::size_t granules) noexcept;
  // Such granules.
  std::size_t granules() const noexcept { return granules_; }
  // Gives back what is beyond the first `granules`, none of which has been used.
  void shrink(std::size_t granules) noexcept;

  // Makes sure that heap `number` has its structure; false as above, or where there are too many.
  bool add_heap(std::uint32_t number) noexcept;

 private:
  // A prefix of it is the process's: accessible, but for the granules.
  struct Part {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
  };

  bool is_placed() const noexcept { return capacity_ != 0; }
  bool place(std::size_t granules) noexcept;
  bool place_freely(std::size_t granules) noexcept;
  bool place_reserved(std::size_t granules) noexcept;
  void lay_out(std::uintptr_t begin, std::size_t capacity, std::size_t heap_capacity) noexcept;
  void forget() noexcept;
  bool extend_by_steps(std::size_t granules) noexcept;
  bool take(std::size_t granules) noexcept;
  bool take_table(Part& part, std::size_t bytes) const noexcept;
  bool take_addresses(std::size_t bytes) noexcept;
  void shrink_table(Part& part, std::size_t bytes) const noexcept;

  std::size_t granules_ = 0;
  std::size_t capacity_ = 0;  // granules for which there is room in the range; 0: not yet chosen
  std::size_t heap_capacity_ = 0;
  bool is_reserved_ = false;  // the whole range is the process's, and inaccessible at first
  Part map_;
  Part spans_;
  Part remote_frees_;
  Part heaps_;
  Part memory_;
};

}  // namespace ts::engine
