// A set of object numbers, and the place of each member among them.
//
// Why it exists: only objects that are freed or resized later need a record of their birth, and the
// records lie densely when each is found by its place among those. One bit an object, and one more
// for the places. What it refuses to do: change once it is closed.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

namespace ts::trace {

class ObjectSet {
 public:
  void add(std::uint64_t object);

  // Numbers the members, in their order. Call it once, after the last add.
  void close();

  // How many members there are, once closed.
  std::uint64_t members() const { return members_; }

  // The place of a member, from 0; nothing for what is no member. Once closed.
  std::optional<std::uint64_t> place(std::uint64_t object) const;

 private:
  static constexpr std::size_t page_objects = 1U << 16;
  static constexpr std::size_t word_bits = 64;

  struct Page {
    std::uint64_t first_place = 0;
    std::array<std::uint64_t, page_objects / word_bits> words{};
    std::array<std::uint16_t, page_objects / word_bits> before{};  // members in earlier words
  };

  const Page* find_page(std::uint64_t number) const;

  std::map<std::uint64_t, std::unique_ptr<Page>> pages_;
  mutable std::uint64_t newest_number_ = 0;
  mutable Page* newest_page_ = nullptr;
  std::uint64_t members_ = 0;
};

}  // namespace ts::trace
