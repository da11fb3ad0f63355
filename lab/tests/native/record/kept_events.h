// A sink that keeps everything, and checks what a trace's writer would check.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "record/collector/books.h"

namespace ts::record {

struct KeptImage {
  trace::Image image;
  std::vector<trace::Event> events;
  std::uint64_t next_object = 0;
  std::uint32_t threads = 1;
  bool has_ended = false;
};

class KeptEvents : public Sink {
 public:
  std::uint32_t begin_image(const trace::Image& image) override {
    EXPECT_TRUE(image.parent == trace::no_image || image.parent < images.size());
    images.push_back({.image = image, .events = {}, .next_object = image.first_object});
    return static_cast<std::uint32_t>(images.size() - 1);
  }

  void add(std::uint32_t number, const trace::Event& event) override {
    KeptImage& kept = images.at(number);
    EXPECT_FALSE(kept.has_ended);
    if (trace::makes_object(event.kind)) {
      EXPECT_EQ(event.object, kept.next_object);
      ++kept.next_object;
    }
    EXPECT_LE(event.thread, kept.threads);
    kept.threads = std::max(kept.threads, event.thread + 1);
    kept.events.push_back(event);
  }

  void end_image(std::uint32_t number, trace::Image::End end, std::uint64_t end_ns) override {
    KeptImage& kept = images.at(number);
    EXPECT_FALSE(kept.has_ended);
    kept.has_ended = true;
    kept.image.end = end;
    kept.image.end_ns = end_ns;
  }

  std::vector<KeptImage> images;
};

}  // namespace ts::record
