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

#include "trace/format/event.h"

namespace ts::trace {

class ObjectSizes {
 public:
  // An object that is there already gets the new size.
  void set(std::uint64_t object, std::uint64_t size);
  std::optional<std::uint64_t> find(std::uint64_t object) const;
  // Returns its size, or nothing where there is no such object.
  std::optional<std::uint64_t> remove(std::uint64_t object);

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

  Page* find_page(std::uint64_t number) const;
  Page& page_of(std::uint64_t number);
  std::uint64_t size_of(std::uint64_t object, std::uint32_t coded) const;

  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;
  std::unordered_map<std::uint64_t, std::uint64_t> huge_;
  std::unique_ptr<Page> spare_;  // an empty one: a border between pages may be crossed often
  mutable std::uint64_t newest_number_ = 0;
  mutable Page* newest_page_ = nullptr;
  std::uint64_t objects_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace ts::trace
