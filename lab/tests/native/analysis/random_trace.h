// Small random traces for the tests of what looks into traces: as wild as a trace may be.
//
// Why it exists: an oracle needs traces in which everything occurs, close together. What it refuses
// to do: resemble programs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "trace/format/event.h"
#include "trace/format/writer.h"

namespace ts::testing {

// The events of one image, and what it inherits.
struct RandomImage {
  trace::Image image;
  std::vector<trace::Event> events;
};

// Makes the events of one image, or of a chain of forked ones.
class RandomTrace {
 public:
  explicit RandomTrace(unsigned seed) : random_{seed} {}

  // Each image is forked from the one before it, at its last event but a few.
  std::vector<RandomImage> make(std::size_t images, std::size_t events) {
    std::vector<RandomImage> all;
    std::vector<std::uint64_t> live;
    std::uint64_t next_object = 0;
    for (std::uint32_t number = 0; number < images; ++number) {
      RandomImage made;
      made.image.number = number;
      made.image.program = "random";
      made.image.first_object = next_object;
      if (number > 0) {
        made.image.parent = number - 1;
        made.image.birth = trace::Image::Birth::fork;
        made.image.fork_event = forked_at_;
      }
      fill(made, live, next_object, events, number + 1 < images);
      all.push_back(made);
      live = live_at_fork_;
      next_object = next_object_at_fork_;
    }
    return all;
  }

  static void write(const std::vector<RandomImage>& images, const std::string& path) {
    trace::Writer writer = trace::Writer(path, true);
    for (const RandomImage& each : images) {
      const std::uint32_t number = writer.begin_image(each.image);
      for (const trace::Event& event : each.events) writer.add(number, event);
      writer.end_image(number, trace::Image::End::exited, 1'000'000);
    }
    writer.finish();
  }

 private:
  std::uint64_t below(std::uint64_t end) {
    return std::uniform_int_distribution<std::uint64_t>{0, end - 1}(random_);
  }

  std::uint64_t size() {
    switch (below(12)) {
      case 0:
        return 0;
      case 1:
        return 1 + below(200'000);
      case 2:
        return (1U << 20) + below(1U << 22);
      case 3:
        return (5ULL << 30) + below(1000);  // does not fit into 32 bits
      default:
        return 1 + below(300);
    }
  }

  void fill(RandomImage& made, std::vector<std::uint64_t> live, std::uint64_t next_object,
            std::size_t count, bool forks) {
    std::uint32_t threads = 1;
    std::uint64_t time_ns = 0;
    const std::size_t fork_at = forks ? count - 1 - below(std::min<std::size_t>(count, 10)) : count;
    for (std::size_t i = 0; i < count; ++i) {
      // Times of threads may step back, and sometimes nothing happens for seconds.
      time_ns += below(2000);
      if (below(40) == 0) time_ns += 5'000'000'000;
      trace::Event event;
      event.thread = static_cast<std::uint32_t>(below(threads));
      event.time_ns = time_ns - std::min<std::uint64_t>(time_ns, below(20) == 0 ? 3000 : 0);
      if (i == fork_at) {
        event.kind = trace::Kind::fork;
        event.object = made.image.number + 1;
        forked_at_ = i;
        live_at_fork_ = live;
        next_object_at_fork_ = next_object;
      } else {
        choose(event, live, next_object, threads, i > 0);
      }
      made.events.push_back(event);
    }
  }

  void choose(trace::Event& event, std::vector<std::uint64_t>& live, std::uint64_t& next_object,
              std::uint32_t& threads, bool may_begin_thread) {
    const std::uint64_t dice = below(20);
    if (dice == 0 && threads < 5 && may_begin_thread) {
      event.kind = trace::Kind::thread_begin;
      event.object = event.thread;
      event.thread = threads++;
    } else if (dice == 1) {
      event.kind = trace::Kind::refused;
      event.size = size();
    } else if (dice < 10 || live.empty()) {
      event.kind = static_cast<trace::Kind>(below(3));
      event.object = next_object++;
      event.size = size();
      if (event.kind == trace::Kind::aligned) {
        event.log2_alignment = static_cast<std::uint8_t>(3 + below(10));
      }
      live.push_back(event.object);
    } else {
      const std::size_t place = below(4) == 0 ? live.size() - 1 : below(live.size());
      event.object = live[place];
      event.kind = dice < 13 ? trace::Kind::realloc : trace::Kind::free;
      if (event.kind == trace::Kind::realloc) {
        event.size = size();
      } else {
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(place));
      }
    }
  }

  std::mt19937 random_;
  std::uint64_t forked_at_ = 0;
  std::vector<std::uint64_t> live_at_fork_;
  std::uint64_t next_object_at_fork_ = 0;
};

}  // namespace ts::testing
