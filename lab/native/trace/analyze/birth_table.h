// When, by which thread and how large each object was made.
//
// Why it exists: at its death an object's lifetime is told, so its birth has to be kept as long as
// it lives. Objects are given by their places among those that are freed or resized at all
// (object_set.h), so that pages are dense; a page goes when all of its objects are dead. Since each
// such object has two events, its 56 bytes are at most 28 an event of the trace. What it refuses to
// do: hold anything of objects of which nothing more is heard.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace ts::trace {

struct Birth {
  std::uint64_t event = 0;
  std::uint64_t time_ns = 0;
  std::uint64_t clock_bytes = 0;  // requested in the image until then, its own bytes included
  std::uint64_t size = 0;         // now
  std::uint64_t first_size = 0;   // of one that was resized
  std::uint32_t resizes = 0;
  std::uint32_t thread = 0;
  bool is_inherited = false;  // then only the size is known
  bool is_there = false;      // in the table

  void resize(std::uint64_t to) {
    if (resizes++ == 0) first_size = size;
    size = to;
  }
  friend bool operator==(const Birth&, const Birth&) = default;
};

class BirthTable {
 public:
  explicit BirthTable(std::uint64_t places) : pages_((places + page_places - 1) / page_places) {}

  // The place must be empty.
  void insert(std::uint64_t place, const Birth& birth) {
    std::unique_ptr<Page>& page = pages_[place / page_places];
    if (page == nullptr) page = spare_ != nullptr ? std::move(spare_) : std::make_unique<Page>();
    ++page->taken;
    page->births[place % page_places] = birth;
    page->births[place % page_places].is_there = true;
  }

  // Null: it is empty.
  Birth* find(std::uint64_t place) {
    Page* const page = pages_[place / page_places].get();
    if (page == nullptr || !page->births[place % page_places].is_there) return nullptr;
    return &page->births[place % page_places];
  }

  // The place must be taken.
  void remove(std::uint64_t place) {
    std::unique_ptr<Page>& page = pages_[place / page_places];
    page->births[place % page_places].is_there = false;
    if (--page->taken == 0) spare_ = std::move(page);
  }

  // visit(birth) for all that is left, by place.
  template <typename Visit>
  void each(Visit visit) const {
    for (const std::unique_ptr<Page>& page : pages_) {
      if (page == nullptr) continue;
      for (const Birth& birth : page->births) {
        if (birth.is_there) visit(birth);
      }
    }
  }

 private:
  static constexpr std::uint64_t page_places = 256;

  struct Page {
    std::uint64_t taken = 0;
    std::array<Birth, page_places> births;
  };

  std::vector<std::unique_ptr<Page>> pages_;
  std::unique_ptr<Page> spare_;  // an empty one: a border between pages may be crossed often
};

}  // namespace ts::trace
