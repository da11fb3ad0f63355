// A set of object numbers, and the place of each member among them.
//
// Why it exists: only objects that are freed or resized later need a record of their birth, and the
// records lie densely when each is found by its place among those. One bit an object, and one more
// for the places. What it refuses to do: change once it is closed.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

namespace ts::trace {

class ObjectSet {
 public:
  void add(std::uint64_t object) {
    const std::uint64_t number = object / page_objects;
    if (find_page(number) == nullptr) {
      std::unique_ptr<Page>& page = pages_[number];
      page = std::make_unique<Page>();
      newest_number_ = number;
      newest_page_ = page.get();
    }
    const std::uint64_t bit = object % page_objects;
    newest_page_->words[bit / word_bits] |= 1ULL << (bit % word_bits);
  }

  // Numbers the members, in their order. Call it once, after the last add.
  void close() {
    members_ = 0;
    for (auto& [number, page] : pages_) {
      page->first_place = members_;
      std::uint64_t before = 0;
      for (std::size_t i = 0; i < page->words.size(); ++i) {
        page->before[i] = static_cast<std::uint16_t>(before);  // the last word is not in
        before += static_cast<std::uint64_t>(std::popcount(page->words[i]));
      }
      members_ += before;
    }
  }

  // How many members there are, once closed.
  std::uint64_t members() const { return members_; }

  // The place of a member, from 0; nothing for what is no member. Once closed.
  std::optional<std::uint64_t> place(std::uint64_t object) const {
    const Page* const page = find_page(object / page_objects);
    if (page == nullptr) return std::nullopt;
    const std::uint64_t bit = object % page_objects;
    const std::uint64_t word = page->words[bit / word_bits];
    const std::uint64_t mask = 1ULL << (bit % word_bits);
    if ((word & mask) == 0) return std::nullopt;
    const auto in_word = static_cast<std::uint64_t>(std::popcount(word & (mask - 1)));
    return page->first_place + page->before[bit / word_bits] + in_word;
  }

 private:
  static constexpr std::size_t page_objects = 1U << 16;
  static constexpr std::size_t word_bits = 64;

  struct Page {
    std::uint64_t first_place = 0;
    std::array<std::uint64_t, page_objects / word_bits> words{};
    std::array<std::uint16_t, page_objects / word_bits> before{};  // members in earlier words
  };

  const Page* find_page(std::uint64_t number) const {
    if (newest_page_ != nullptr && newest_number_ == number) return newest_page_;
    const auto found = pages_.find(number);
    if (found == pages_.end()) return nullptr;
    newest_number_ = number;
    newest_page_ = found->second.get();
    return newest_page_;
  }

  std::map<std::uint64_t, std::unique_ptr<Page>> pages_;
  mutable std::uint64_t newest_number_ = 0;
  mutable Page* newest_page_ = nullptr;
  std::uint64_t members_ = 0;
};

}  // namespace ts::trace
