// The sizes of the objects that are live, by their numbers.
//
// Why it exists: live bytes at each event need the size of whatever is freed, and nothing else.
// Four bytes for each object between the oldest and the newest live one, in pages that go when all
// of their objects are dead: 10^8 objects take 400 MB even if none ever dies. What it refuses to
// do: know more.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "trace/format/event.h"

namespace ts::trace {

class ObjectSizes {
 public:
  // An object that is there already gets the new size.
  void set(std::uint64_t object, std::uint64_t size) {
    remove(object);
    Page& page = page_of(object / page_objects);
    ++page.live;
    ++objects_;
    bytes_ += size;
    const bool is_huge = size >= huge;
    page.sizes[object % page_objects] = is_huge ? huge : static_cast<std::uint32_t>(size);
    if (is_huge) huge_[object] = size;
  }

  std::optional<std::uint64_t> find(std::uint64_t object) const {
    const Page* const page = find_page(object / page_objects);
    if (page == nullptr) return std::nullopt;
    const std::uint32_t coded = page->sizes[object % page_objects];
    if (coded == absent) return std::nullopt;
    return size_of(object, coded);
  }

  // Returns its size, or nothing where there is no such object.
  std::optional<std::uint64_t> remove(std::uint64_t object) {
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

  // What a recorded call does to its object.
  void apply(const Event& event) {
    if (makes_object(event.kind) || (event.kind == Kind::realloc && find(event.object))) {
      set(event.object, event.size);
    } else if (event.kind == Kind::free) {
      remove(event.object);
    }
  }

  std::uint64_t objects() const { return objects_; }
  std::uint64_t bytes() const { return bytes_; }

  // visit(object, size), in no order.
  template <typename Visit>
  void each(Visit visit) const {
    for (const auto& [number, page] : pages_) {
      if (page->live == 0) continue;
      for (std::size_t i = 0; i < page_objects; ++i) {
        const std::uint64_t object = number * page_objects + i;
        if (page->sizes[i] != absent) visit(object, size_of(object, page->sizes[i]));
      }
    }
  }

 private:
  static constexpr std::size_t page_objects = 1U << 16;
  static constexpr std::uint32_t absent = 0xffff'ffff;
  static constexpr std::uint32_t huge = 0xffff'fffe;  // the size is in huge_

  struct Page {
    std::uint32_t live = 0;
    std::array<std::uint32_t, page_objects> sizes;
  };

  Page* find_page(std::uint64_t number) const {
    if (newest_page_ != nullptr && newest_number_ == number) return newest_page_;
    const auto found = pages_.find(number);
    if (found == pages_.end()) return nullptr;
    newest_number_ = number;
    newest_page_ = found->second.get();
    return newest_page_;
  }

  Page& page_of(std::uint64_t number) {
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

  std::uint64_t size_of(std::uint64_t object, std::uint32_t coded) const {
    return coded == huge ? huge_.at(object) : coded;
  }

  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;
  std::unordered_map<std::uint64_t, std::uint64_t> huge_;
  std::unique_ptr<Page> spare_;  // an empty one: a border between pages may be crossed often
  mutable std::uint64_t newest_number_ = 0;
  mutable Page* newest_page_ = nullptr;
  std::uint64_t objects_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace ts::trace
