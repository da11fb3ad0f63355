// A sink that keeps everything, numbers objects in the order of their allocations, and checks that
// slots and generations tell them apart.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "record/collector/event_translator.h"

namespace ts::record {

struct KeptEvent : trace::Event {
  std::uint64_t object = 0;  // its number; of thread_begin the creator, of fork the child
};

struct KeptImage {
  trace::Image image;
  std::vector<KeptEvent> events;
  std::map<std::uint32_t, std::uint64_t> living;       // objects by slot
  std::map<std::uint32_t, std::uint32_t> generations;  // of slots: objects so far
  std::uint64_t next_object = 0;
  std::uint32_t threads = 1;
  bool has_ended = false;
  trace::End end = trace::End::unknown;
};

class KeptEvents : public Sink {
 public:
  std::uint32_t begin_image(const trace::Image& image) override {
    EXPECT_TRUE(image.parent == trace::no_image || image.parent < images.size());
    KeptImage kept;
    if (image.birth == trace::Birth::fork) {
      kept = images.at(image.parent);
      EXPECT_EQ(image.fork_event, kept.events.size());
      kept.events.clear();
      kept.threads = 1;
    }
    kept.image = image;
    images.push_back(kept);
    return static_cast<std::uint32_t>(images.size() - 1);
  }

  void add(std::uint32_t number, const trace::Event& event) override {
    KeptImage& image = images.at(number);
    EXPECT_FALSE(image.has_ended);
    EXPECT_LE(event.thread, image.threads);
    image.threads = std::max(image.threads, event.thread + 1);
    KeptEvent kept{event, event.slot};
    if (trace::makes_object(event.kind)) {
      kept.object = image.next_object++;
      EXPECT_TRUE(image.living.emplace(event.slot, kept.object).second);
      EXPECT_EQ(event.generation, image.generations[event.slot]++);
    } else if (trace::has_object(event.kind)) {
      kept.object = image.living.at(event.slot);
      EXPECT_EQ(event.generation, image.generations[event.slot] - 1);
      if (event.kind == trace::Kind::free) image.living.erase(event.slot);
    }
    image.events.push_back(kept);
  }

  void end_image(std::uint32_t number, trace::End end, std::uint64_t /*end_ns*/) override {
    KeptImage& kept = images.at(number);
    EXPECT_FALSE(kept.has_ended);
    kept.has_ended = true;
    kept.end = end;
  }

  std::vector<KeptImage> images;
};

}  // namespace ts::record
