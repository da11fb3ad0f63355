// Reads a trace, chunk by chunk, and checks that what it returns conforms to docs/formats/trace.md.
// Whether events are consistent (frees only of live objects) is for callers that track objects.
//
// replay uses it, so it needs no C++ run-time library and never calls malloc: the file and all
// buffers are mapped, and errors are plain text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trace/format.h"

struct ZSTD_DCtx_s;

namespace ts::trace {

// Which file, what is wrong with it, and what to do.
struct Problem {
  char text[640] = {};
};
[[gnu::format(printf, 2, 3)]] bool refuse(Problem& problem, const char* pattern, ...);  // false

class Reader {
 public:
  Reader() = default;
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  [[nodiscard]] bool open(const char* path, Problem& problem);

  enum class ReadStatus : std::uint8_t { chunk, end, problem };
  ReadStatus next(Problem& problem);
  void rewind();

  // The current chunk; of the three views, use the one of its type.
  const ChunkHeader& header() const { return *reinterpret_cast<const ChunkHeader*>(plain_); }
  std::span<const Event> events() const { return {events_, header().count}; }
  const ImageBegin& image_begin() const { return *reinterpret_cast<const ImageBegin*>(body()); }
  const ImageEnd& image_end() const { return *reinterpret_cast<const ImageEnd*>(body()); }
  std::span<const unsigned char> plain() const { return {plain_, plain_bytes_}; }  // all of it

  // At the end: whether the recorder finished. If not, it was killed.
  bool is_finished() const { return is_finished_; }
  std::uint64_t file_bytes() const { return file_bytes_; }

 private:
  struct ImageState {
    std::uint64_t events;
    std::uint32_t threads;
    std::uint32_t forking;  // 1 + the child whose fork must come next; 0: none
    bool has_ended;
  };

  const unsigned char* body() const { return plain_ + sizeof(ChunkHeader); }
  bool unpack(Problem& problem);
  const char* check();
  const char* check_image();
  const char* check_events();
  const char* check_event(const Event& event, ImageState& image) const;

  const char* path_ = "";
  const unsigned char* file_ = nullptr;
  std::size_t file_bytes_ = 0;
  std::size_t at_ = 0;
  void* work_ = nullptr;  // of the decompressor
  std::size_t work_bytes_ = 0;
  ZSTD_DCtx_s* decompressor_ = nullptr;
  unsigned char* plain_ = nullptr;
  std::size_t plain_bytes_ = 0;
  Event* events_ = nullptr;
  ImageState* images_ = nullptr;
  std::uint32_t image_count_ = 0;
  std::uint64_t event_count_ = 0;
  bool is_finished_ = false;
};

}  // namespace ts::trace
