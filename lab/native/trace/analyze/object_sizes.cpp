// Pages of coded sizes; see object_sizes.h.
#include "trace/analyze/object_sizes.h"

#include <utility>

namespace ts::trace {

ObjectSizes::Page* ObjectSizes::find_page(std::uint64_t number) const {
  if (newest_page_ != nullptr && newest_number_ == number) return newest_page_;
  const auto found = pages_.find(number);
  if (found == pages_.end()) return nullptr;
  newest_number_ = number;
  newest_page_ = found->second.get();
  return newest_page_;
}

ObjectSizes::Page& ObjectSizes::page_of(std::uint64_t number) {
  if (Page* const page = find_page(number)) return *page;
  std::unique_ptr<Page> page = std::move(spare_);
  if (page == nullptr) {
    page = std::make_unique<Page>();
    page->sizes.fill(absent);
  }
  newest_number_ = number;
  newest_page_ = page.get();
  pages_[number] = std::move(page);
  return *newest_page_;
}

std::uint64_t ObjectSizes::size_of(std::uint64_t object, std::uint32_t coded) const {
  return coded == huge ? huge_.at(object) : coded;
}

void ObjectSizes::set(std::uint64_t object, std::uint64_t size) {
  remove(object);
  Page& page = page_of(object / page_objects);
  ++page.live;
  ++objects_;
  bytes_ += size;
  const bool is_huge = size >= huge;
  page.sizes[object % page_objects] = is_huge ? huge : static_cast<std::uint32_t>(size);
  if (is_huge) huge_[object] = size;
}

std::optional<std::uint64_t> ObjectSizes::find(std::uint64_t object) const {
  const Page* const page = find_page(object / page_objects);
  if (page == nullptr) return std::nullopt;
  const std::uint32_t coded = page->sizes[object % page_objects];
  if (coded == absent) return std::nullopt;
  return size_of(object, coded);
}

std::optional<std::uint64_t> ObjectSizes::remove(std::uint64_t object) {
  const std::optional<std::uint64_t> size = find(object);
  if (!size) return std::nullopt;
  const std::uint64_t number = object / page_objects;
  Page& page = *find_page(number);
  std::uint32_t& coded = page.sizes[object % page_objects];
  if (coded == huge) huge_.erase(object);
  coded = absent;
  --objects_;
  bytes_ -= *size;
  if (--page.live == 0) {
    const auto found = pages_.find(number);
    spare_ = std::move(found->second);
    pages_.erase(found);
    newest_page_ = nullptr;
  }
  return size;
}

}  // namespace ts::trace
