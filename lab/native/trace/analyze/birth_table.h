// When, by whom and how large each object was made, in 18 bytes an object.
//
// Why it exists: at its death an object's lifetime is told, so its birth has to be kept as long as
// it lives. Objects are given by their places among those that are freed or resized at all
// (object_set.h), so that pages are dense; a page holds distances from its first object in 32 bits,
// and goes when all of its objects are dead. What does not fit (a page that spans 4 s, 4 GiB or
// more) is kept at full width elsewhere. Since each such object has two events, this is at most 9
// bytes an event of the trace, and 6 more for one that is resized and never freed. What it refuses
// to do: hold anything of objects of which nothing more is heard.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace ts::trace {

struct Birth {
  std::uint64_t event = 0;
  std::uint64_t time_ns = 0;
  std::uint64_t clock_bytes = 0;  // requested in the image until then, its own bytes included
  std::uint64_t size = 0;         // now
  std::uint32_t thread = 0;
  bool is_inherited = false;  // then only the size is known

  friend bool operator==(const Birth&, const Birth&) = default;
};

// The resizes of an object so far.
struct Chain {
  std::uint32_t resizes = 0;
  std::uint64_t first_size = 0;
};

class BirthTable {
 public:
  explicit BirthTable(std::uint64_t places) : pages_((places + page_places - 1) / page_places) {}

  // The place must be empty.
  void insert(std::uint64_t place, const Birth& birth);
  std::optional<Birth> find(std::uint64_t place) const;

  // The place must be taken.
  void resize(std::uint64_t place, std::uint64_t size);
  void remove(std::uint64_t place);

  // How it was resized; without any resize, {0, 0}.
  Chain chain(std::uint64_t place) const;

  // visit(birth, chain) for all that is left, by place.
  template <typename Visit>
  void each(Visit visit) const {
    for (std::uint64_t number = 0; number < pages_.size(); ++number) {
      if (pages_[number] == nullptr) continue;
      for (std::uint64_t i = 0; i < page_places; ++i) {
        const std::uint64_t place = number * page_places + i;
        if (const std::optional<Birth> birth = find(place)) visit(*birth, chain(place));
      }
    }
  }

 private:
  static constexpr std::uint64_t page_places = 256;
  static constexpr std::uint16_t empty = 0xffff;
  static constexpr std::uint16_t wide = 0xfffe;       // in wide_
  static constexpr std::uint16_t inherited = 0xfffd;  // only its size is known
  static constexpr std::uint32_t huge = 0xffff'ffff;  // a first size that is in huge_first_

  struct Resized {
    std::uint32_t count;
    std::uint32_t first_size;
    std::uint8_t place;  // in the page
  };
  struct Page {
    Page() { thread.fill(empty); }

    std::uint64_t event_base = 0;
    std::uint64_t time_base = 0;
    std::uint64_t clock_base = 0;
    std::vector<Resized> resized;  // of its objects, in no order; mostly few
    std::uint32_t taken = 0;
    std::array<std::uint16_t, page_places> thread;
    std::array<std::uint32_t, page_places> event;
    std::array<std::uint32_t, page_places> time;
    std::array<std::uint32_t, page_places> clock;
    std::array<std::uint32_t, page_places> size;
  };

  void store(std::uint64_t place, Page& page, const Birth& birth);
  static Resized* find_resized(Page& page, std::uint64_t place);

  std::vector<std::unique_ptr<Page>> pages_;
  std::unique_ptr<Page> spare_;  // an empty one: a border between pages may be crossed often
  std::unordered_map<std::uint64_t, Birth> wide_;
  std::unordered_map<std::uint64_t, std::uint64_t> huge_first_;
};

}  // namespace ts::trace
