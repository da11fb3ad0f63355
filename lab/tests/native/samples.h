// Events and traces for tests: made by a writer, or chunk by chunk.
#pragma once

#include <zstd.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "trace/format.h"
#include "trace/slots.h"
#include "trace/writer.h"

namespace ts::trace::testing {

inline Event event_of(Kind kind, std::uint32_t thread, Slot slot = {}, std::uint64_t size = 0) {
  Event event;
  event.kind = kind;
  event.thread = thread;
  event.slot = slot.number;
  event.generation = slot.generation;
  event.size = size;
  return event;
}

// Two threads, a forked child, another program; every kind of event.
inline void write_sample(const std::string& path, std::uint64_t events) {
  Writer writer{path};
  const std::uint32_t parent = writer.begin_image({.program = "/usr/bin/sample", .allocator = "l"});
  std::mt19937_64 random{events};
  Slots slots;
  std::vector<Slot> live;
  std::uint64_t now = 0;
  const auto add = [&](Kind kind, std::uint32_t thread, Slot slot, std::uint64_t size) {
    Event event = event_of(kind, thread, slot, size);
    event.time_ns = now++ * 100;
    if (kind == Kind::aligned) event.log2_alignment = 6;
    writer.add(parent, event);
  };
  add(Kind::thread_begin, 1, {}, 0);
  add(Kind::refused, 0, {}, 1ULL << 60);
  while (now + 2 < events) {
    const auto thread = static_cast<std::uint32_t>(random() % 2);
    if (live.empty() || random() % 3 == 0) {
      live.push_back(slots.take(thread, now));
      add(static_cast<Kind>(random() % 3), thread, live.back(), random() % 5000);
    } else if (random() % 2 == 0) {
      add(Kind::realloc, thread, live[random() % live.size()], random() % 9000);
    } else {
      add(Kind::free, thread, live.back(), 0);
      slots.give_back(live.back(), thread, now);
      live.pop_back();
    }
  }
  const std::uint32_t child =
      writer.begin_image({.parent = parent, .birth = Birth::fork, .fork_event = now});
  add(Kind::fork, 0, {child, 0}, 0);
  if (!live.empty()) writer.add(child, event_of(Kind::free, 0, live[0]));
  writer.end_image(child, End::killed, 5);
  add(Kind::thread_end, 1, {}, 0);
  const std::uint32_t other = writer.begin_image({.parent = parent, .birth = Birth::exec});
  writer.add(other, event_of(Kind::malloc, 0, {}, 7));
  writer.end_image(parent, End::exited, now);
  writer.finish();
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
