// Events and chunks, and traces whose every figure is known, since they are made up.
//
// A plan must be held against something that no planner has touched. Objects wander between
// threads, threads come and go, images fork, and all of it follows from a seed.
#pragma once

#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "replay/plan.h"
#include "trace/format.h"
#include "trace/slots.h"
#include "trace/writer.h"

namespace ts::trace::testing {

inline Event event_of(Kind kind, std::uint32_t thread, Slot slot = {}, std::uint64_t size = 0) {
  return {.size = size,
          .slot = slot.number,
          .generation = slot.generation,
          .thread = thread,
          .kind = kind};
}

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// One frame with this chunk, and a correct checksum.
inline std::string frame_of(const ChunkHeader& header, const std::string& body) {
  const std::string plain = bytes_of(header) + body;
  std::string packed(ZSTD_compressBound(plain.size()), '\0');
  ZSTD_CCtx* const compressor = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(compressor, ZSTD_c_checksumFlag, 1);
  packed.resize(
      ZSTD_compress2(compressor, packed.data(), packed.size(), plain.data(), plain.size()));
  ZSTD_freeCCtx(compressor);
  return packed;
}

}  // namespace ts::trace::testing

namespace ts::replay::testing {

struct Recipe {
  std::uint64_t seed = 1;
  std::uint64_t events = 10'000;     // of the first image
  std::uint64_t threads = 4;         // alive at the same time, at most
  std::uint64_t live_objects = 500;  // about which their number moves
  std::uint64_t max_bytes = 2'000;   // of an object
  std::uint64_t has_aligned = 1;     // some objects are aligned, up to a page
  std::uint64_t threads_end = 1;
  std::uint64_t forks = 0;             // of the first image; each child has a tenth of its events
  std::uint64_t execs = 0;             // images that the first one becomes or starts; likewise
  std::uint64_t exec_events = 0;       // of each of these; 0: a tenth, too
  std::uint64_t everybody_shares = 1;  // any thread frees and resizes any object
  std::uint64_t ns_per_event = 1'000;
};

// Of one image, as plan::Image has them.
struct Expected {
  std::uint32_t number = 0;
  plan::Totals totals = {};
  std::uint64_t events = 0;
  std::uint64_t live_bytes = 0;
  std::uint64_t live_objects = 0;
  std::uint64_t peak_live_bytes = 0;
  std::vector<trace::Event> calls;  // in order; only if asked for
};

using trace::Event;
using trace::Kind;
using trace::testing::event_of;

struct Object {
  trace::Slot slot;
  std::uint64_t size;
  std::uint32_t thread;
};

class Maker {
 public:
  Maker(trace::Writer& writer, const Recipe& recipe, bool keep_calls,
        std::vector<Expected>& expected)
      : writer_{writer},
        recipe_{recipe},
        keep_calls_{keep_calls},
        expected_{expected},
        random_{recipe.seed} {}

  struct State {
    std::uint32_t image = 0;
    std::vector<Object> live;
    trace::Slots slots;
    std::uint64_t events = 0;
    std::vector<std::uint32_t> threads{0};  // that are alive
    std::uint32_t next_thread = 1;
    std::uint64_t time_ns = 0;
  };

  void make_image(State& state, std::uint64_t events, std::uint64_t forks) {
    std::uint64_t next_fork = events / (forks + 1);
    for (std::uint64_t i = 0; i < events; ++i) {
      if (forks > 0 && i == next_fork) {
        fork(state, events / 10);
        next_fork += --forks > 0 ? (events - i) / (forks + 1) : events;
      } else {
        step(state);
      }
    }
    Expected& expected = expected_[state.image];
    expected.live_objects = state.live.size();
    expected.events = state.events;
    writer_.end_image(state.image, trace::End::exited, state.time_ns);
  }

  void begin_image(State& state, const trace::Image& image) {
    state.image = writer_.begin_image(image);
    expected_.emplace_back().number = state.image;
    for (const Object& object : state.live) expected_.back().live_bytes += object.size;
    expected_.back().peak_live_bytes = expected_.back().live_bytes;
  }

 private:
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }

  void add(State& state, Event event) {
    state.time_ns += recipe_.ns_per_event;
    event.time_ns = state.time_ns;
    writer_.add(state.image, event);
    ++state.events;
    if (event.kind > Kind::refused) return;
    Expected& expected = expected_[state.image];
    const auto kind = static_cast<std::size_t>(event.kind);
    ++expected.totals.calls[kind];
    expected.totals.bytes[kind] += std::min(event.size, plan::max_bytes);
    if (keep_calls_) expected.calls.push_back(event);
  }

  void step(State& state) {
    const std::uint32_t thread = state.threads[below(state.threads.size())];
    const std::uint64_t choice = below(1'000);
    if (choice < 4 && state.threads.size() < recipe_.threads) return begin_thread(state, thread);
    if (choice < 6 && thread != 0 && recipe_.threads_end != 0) return end_thread(state, thread);
    if (choice < 8) {
      const std::uint64_t size = below(2) == 0 ? std::uint64_t{1} << 62 : 1'000;
      return add(state, event_of(Kind::refused, thread, {}, size));
    }
    const bool is_many = below(2 * recipe_.live_objects) < state.live.size();
    const std::size_t taken = is_many ? choose(state, thread) : state.live.size();
    if (taken == state.live.size()) return allocate(state, thread);
    if (choice < 300) return resize(state, thread, taken);
    release(state, thread, taken);
  }

  // An object that the thread may have to do with.
  std::size_t choose(const State& state, std::uint32_t thread) {
    std::size_t taken = below(state.live.size());
    if (recipe_.everybody_shares != 0) return taken;
    for (std::size_t i = 0; i < state.live.size(); ++i) {
      if (state.live[taken].thread == thread) return taken;
      taken = (taken + 1) % state.live.size();
    }
    return state.live.size();
  }

  std::uint64_t size() {
    const std::uint64_t most = below(10) == 0 ? recipe_.max_bytes : recipe_.max_bytes / 16;
    return below(most + 1);
  }

  void allocate(State& state, std::uint32_t thread) {
    const std::uint64_t choice = below(recipe_.has_aligned != 0 ? 10 : 9);
    const Kind kind = choice < 7 ? Kind::malloc : choice < 9 ? Kind::calloc : Kind::aligned;
    const std::uint64_t log2 = kind == Kind::aligned ? below(13) : 0;
    const trace::Slot slot = state.slots.take(thread, state.events);
    Event event = event_of(kind, thread, slot, size());
    event.log2_alignment = static_cast<std::uint8_t>(log2);
    state.live.push_back({slot, event.size, thread});
    add_live(state, 0, event.size);
    add(state, event);
  }

  void resize(State& state, std::uint32_t thread, std::size_t taken) {
    Object& object = state.live[taken];
    const std::uint64_t new_size = size();
    add_live(state, object.size, new_size);
    object.size = new_size;
    add(state, event_of(Kind::realloc, thread, object.slot, new_size));
  }

  void release(State& state, std::uint32_t thread, std::size_t taken) {
    const Object object = state.live[taken];
    state.live[taken] = state.live.back();
    state.live.pop_back();
    Expected& expected = expected_[state.image];
    expected.totals.bytes[static_cast<std::size_t>(Kind::free)] += object.size;
    add_live(state, object.size, 0);
    add(state, event_of(Kind::free, thread, object.slot));
    state.slots.give_back(object.slot, thread, state.events);
  }

  void add_live(const State& state, std::uint64_t less, std::uint64_t more) {
    Expected& expected = expected_[state.image];
    expected.live_bytes += more - less;
    expected.peak_live_bytes = std::max(expected.peak_live_bytes, expected.live_bytes);
  }

  void begin_thread(State& state, std::uint32_t creator) {
    const std::uint32_t thread = state.next_thread++;
    state.threads.push_back(thread);
    add(state, event_of(Kind::thread_begin, thread, {creator, 0}));
  }

  void end_thread(State& state, std::uint32_t thread) {
    std::erase(state.threads, thread);
    add(state, event_of(Kind::thread_end, thread));
    state.slots.end_thread(thread, state.events);
  }

  void fork(State& state, std::uint64_t events) {
    State child = state;
    child.threads = {0};
    child.next_thread = 1;
    child.time_ns = 0;
    child.events = 0;
    child.slots = trace::Slots{state.slots.count()};
    for (Object& object : child.live) object.thread = 0;
    const std::uint32_t thread = state.threads[below(state.threads.size())];
    begin_image(child, {.parent = state.image,
                        .birth = trace::Birth::fork,
                        .fork_event = state.events,
                        .program = "child"});
    add(state, event_of(Kind::fork, thread, {child.image, 0}));
    make_image(child, events, 0);
  }

  trace::Writer& writer_;
  const Recipe& recipe_;
  bool keep_calls_;
  std::vector<Expected>& expected_;
  std::mt19937_64 random_;
};

// Writes the trace, over whatever is there. By number of image.
inline std::vector<Expected> write_synthetic(const std::string& path, const Recipe& recipe,
                                             bool keep_calls = false) {
  trace::Writer writer{path};
  std::vector<Expected> expected;
  Maker maker{writer, recipe, keep_calls, expected};
  Maker::State state;
  maker.begin_image(state, {.program = "synthetic"});
  maker.make_image(state, recipe.events, recipe.forks);
  for (std::uint64_t i = 0; i < recipe.execs; ++i) {
    Maker::State other;
    maker.begin_image(other, {.parent = 0, .birth = trace::Birth::exec, .program = "other"});
    maker.make_image(other, recipe.exec_events != 0 ? recipe.exec_events : recipe.events / 10, 0);
  }
  writer.finish();
  return expected;
}

}  // namespace ts::replay::testing
