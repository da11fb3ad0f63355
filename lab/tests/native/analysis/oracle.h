// The definitions of analysis.h once more, word by word, with all events in memory and no thought
// of time: each figure is found by walking through everything again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "analysis/random_trace.h"
#include "trace/analyze/histogram.h"

namespace ts::testing {

using trace::Amount;
using trace::Event;
using trace::Kind;

struct Lifetime {
  std::uint64_t events;
  std::uint64_t ns;
  std::uint64_t bytes;
  std::uint64_t size;
};

class Oracle {
 public:
  // The last image is looked at; those before are its ancestors.
  explicit Oracle(const std::vector<RandomImage>& images) : events_{images.back().events} {
    for (std::size_t i = 0; i + 1 < images.size(); ++i) {
      const std::uint64_t end = images[i + 1].image.fork_event;
      for (std::uint64_t e = 0; e < end; ++e) apply(images[i].events[e], inherited_);
    }
  }

  // Sizes of live objects after so many events.
  std::map<std::uint64_t, std::uint64_t> live_after(std::size_t events) const {
    std::map<std::uint64_t, std::uint64_t> live = inherited_;
    for (std::size_t i = 0; i < events; ++i) apply(events_[i], live);
    return live;
  }

  bool is_inherited(std::uint64_t object) const { return inherited_.contains(object); }

  Amount amount(const std::map<std::uint64_t, std::uint64_t>& objects, bool inherited) const {
    Amount sum;
    for (const auto& [object, size] : objects) {
      if (is_inherited(object) == inherited) sum.add(size);
    }
    return sum;
  }

  static std::uint64_t bytes(const std::map<std::uint64_t, std::uint64_t>& objects) {
    std::uint64_t sum = 0;
    for (const auto& [object, size] : objects) sum += size;
    return sum;
  }

  // The event that allocated an object of this image's own.
  std::size_t birth_of(std::uint64_t object) const {
    for (std::size_t i = 0; i < events_.size(); ++i) {
      if (makes_object(events_[i].kind) && events_[i].object == object) return i;
    }
    return events_.size();
  }

  std::vector<Lifetime> lifetimes() const {
    std::vector<Lifetime> all;
    for (std::size_t i = 0; i < events_.size(); ++i) {
      if (events_[i].kind != Kind::free || is_inherited(events_[i].object)) continue;
      const std::size_t birth = birth_of(events_[i].object);
      const std::uint64_t before = events_[birth].time_ns;
      const std::uint64_t after = events_[i].time_ns;
      all.push_back({i - birth, after > before ? after - before : 0, allocated_between(birth, i),
                     live_after(i).at(events_[i].object)});
    }
    return all;
  }

  bool is_temporary(std::size_t free) const {
    const std::size_t birth = birth_of(events_[free].object);
    if (events_[birth].thread != events_[free].thread) return false;
    for (std::size_t i = birth + 1; i < free; ++i) {
      if (makes_object(events_[i].kind) && events_[i].thread == events_[birth].thread) return false;
    }
    return true;
  }

  // The first event after which live bytes are highest; none if never above the beginning's.
  std::optional<std::size_t> peak() const {
    std::optional<std::size_t> found;
    std::uint64_t most = bytes(inherited_);
    for (std::size_t i = 0; i < events_.size(); ++i) {
      const std::uint64_t now = bytes(live_after(i + 1));
      if (now > most) {
        most = now;
        found = i;
      }
    }
    return found;
  }

  // The sizes that an object had, in order.
  std::vector<std::uint64_t> sizes_of(std::uint64_t object) const {
    std::vector<std::uint64_t> sizes;
    for (const Event& event : events_) {
      if (event.object == object && (makes_object(event.kind) || event.kind == Kind::realloc)) {
        sizes.push_back(event.size);
      }
    }
    return sizes;
  }

  const std::vector<Event>& events() const { return events_; }

 private:
  static void apply(const Event& event, std::map<std::uint64_t, std::uint64_t>& live) {
    if (makes_object(event.kind) || event.kind == Kind::realloc) live[event.object] = event.size;
    if (event.kind == Kind::free) live.erase(event.object);
  }

  std::uint64_t allocated_between(std::size_t birth, std::size_t free) const {
    std::uint64_t sum = 0;
    for (std::size_t i = birth + 1; i < free; ++i) {
      if (makes_object(events_[i].kind)) sum += events_[i].size;
      if (events_[i].kind == Kind::realloc) {
        const std::uint64_t former = live_after(i).at(events_[i].object);
        if (events_[i].size > former) sum += events_[i].size - former;
      }
    }
    return sum;
  }

  std::vector<Event> events_;
  std::map<std::uint64_t, std::uint64_t> inherited_;
};

}  // namespace ts::testing
