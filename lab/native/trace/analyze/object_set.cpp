// Pages of bits, with the members before each word; see object_set.h.
#include "trace/analyze/object_set.h"

#include <bit>

namespace ts::trace {

const ObjectSet::Page* ObjectSet::find_page(std::uint64_t number) const {
  if (newest_page_ != nullptr && newest_number_ == number) return newest_page_;
  const auto found = pages_.find(number);
  if (found == pages_.end()) return nullptr;
  newest_number_ = number;
  newest_page_ = found->second.get();
  return newest_page_;
}

void ObjectSet::add(std::uint64_t object) {
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

void ObjectSet::close() {
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

std::optional<std::uint64_t> ObjectSet::place(std::uint64_t object) const {
  const Page* const page = find_page(object / page_objects);
  if (page == nullptr) return std::nullopt;
  const std::uint64_t bit = object % page_objects;
  const std::uint64_t word = page->words[bit / word_bits];
  const std::uint64_t mask = 1ULL << (bit % word_bits);
  if ((word & mask) == 0) return std::nullopt;
  const auto in_word = static_cast<std::uint64_t>(std::popcount(word & (mask - 1)));
  return page->first_place + page->before[bit / word_bits] + in_word;
}

}  // namespace ts::trace
