// Traces for tests: streams of events whose truth is known, and the files that they make.
//
// Why it exists: what comes back from a file is compared with what went in, event by event. What it
// refuses to do: touch a disk; files are in memory (memfd), since tests make them by the thousand.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "trace/format/bytes.h"
#include "trace/format/event.h"
#include "trace/format/layout.h"
#include "trace/format/writer.h"

namespace ts::trace::testing {

// A file in memory, under a name that can be opened.
class MemoryFile {
 public:
  explicit MemoryFile(ByteSpan bytes = {});
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::string& path() const { return path_; }
  void set(ByteSpan bytes);
  Bytes bytes(std::size_t from = 0) const;

 private:
  int descriptor_;
  std::string path_;
};

// Random events of one image that keep the rules, every number at its extremes now and then.
class RandomEvents {
 public:
  RandomEvents(std::uint64_t seed, std::uint64_t first_object)
      : random_{seed}, next_object_{first_object} {}
  Event next();

 private:
  std::uint64_t any_number();
  std::uint64_t below(std::uint64_t end) { return random_() % end; }

  std::mt19937_64 random_;
  std::uint64_t next_object_;
  std::uint32_t threads_ = 0;
  std::uint64_t time_ns_ = 0;
};

// A program as programs are: few sizes, most blocks die young, some structures are torn down in
// order, time passes in some ten nanoseconds, and threads take turns.
class PlausibleEvents {
 public:
  PlausibleEvents(std::uint64_t seed, std::uint32_t threads) : random_{seed}, threads_{threads} {}
  Event next();

 private:
  Event allocation();
  Event release();

  std::mt19937_64 random_;
  std::uint32_t threads_;
  std::uint32_t seen_threads_ = 0;
  std::uint32_t thread_ = 0;
  std::uint64_t next_object_ = 0;
  std::uint64_t time_ns_ = 0;
  std::vector<std::uint64_t> live_;
  std::size_t tear_down_ = 0;  // how many of the oldest are to go
};

using Events = std::vector<Event>;

// A file and the truth about it.
struct Sample {
  Bytes bytes;
  std::vector<Image> images;
  std::map<std::uint32_t, Events> events;  // by image
};

// Two images whose events come in turns, a flush after every `events_per_chunk`.
Sample make_sample(std::uint64_t seed, std::size_t chunks, std::size_t events_per_chunk,
                   bool is_finished);

struct PlacedChunk {
  std::size_t offset;
  ChunkHeader header;
  std::size_t end() const { return offset + chunk_header_bytes + header.coded_bytes; }
};
// From `offset` on, without a gap; the index included.
std::vector<PlacedChunk> chunks_of(ByteSpan bytes, std::size_t offset = file_header_bytes);

// Makes checksums of chunks, headers and footer right again, as far as their places can be told.
void repair_checksums(Bytes& bytes);

// Gives the chunks at the file's begin, as far as their headers are right, an index and a footer
// that fit; what came after them is gone.
void rebuild_index(Bytes& bytes);

}  // namespace ts::trace::testing
