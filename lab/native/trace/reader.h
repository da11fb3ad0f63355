// Reads a trace, chunk by chunk, and checks that what it returns conforms to docs/formats/trace.md.
// Whether events are consistent (frees only of live objects) is for callers that track objects.
//
// replay uses it, so it needs no C++ run-time library and never calls malloc: the file and all
// buffers are mapped, and errors are plain text.
#pragma once

#define ZSTD_STATIC_LINKING_ONLY  // ZSTD_initStaticDCtx: a decompressor that never calls malloc
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>

#include "trace/format.h"

namespace ts::trace {

// Which file, what is wrong with it, and what to do.
struct Problem {
  char text[640] = {};
};

// Returns false.
// NOLINTNEXTLINE(cert-dcl50-cpp): the attribute makes the compiler check every call
[[gnu::format(printf, 2, 3)]] inline bool refuse(Problem& problem, const char* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is initialised, in the line above
  if (std::vsnprintf(problem.text, sizeof problem.text, pattern, arguments) < 0) {
    problem.text[0] = '\0';
  }
  va_end(arguments);
  return false;
}

inline constexpr std::size_t max_plain_bytes =
    sizeof(ChunkHeader) + max_events_per_chunk * sizeof(Event);
inline constexpr unsigned char zstd_magic[4] = {0x28, 0xb5, 0x2f, 0xfd};
inline constexpr char former_magic[4] = {'\x89', 'T', 'S', 'T'};
inline constexpr char remedy[] = "copy it again, or record it again with `tsmalloc record`";

// Shared, so that a replay does not count them as the allocator's memory.
inline void* map_zeroes(std::size_t bytes) {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return mapped == MAP_FAILED ? nullptr : mapped;
}

inline constexpr std::size_t images_bytes = std::size_t{max_images} * 24;

class Reader {
 public:
  Reader() = default;

  ~Reader() {
    if (file_ != nullptr) munmap(const_cast<unsigned char*>(file_), file_bytes_);
    if (work_ != nullptr) munmap(work_, work_bytes_);
    if (plain_ != nullptr) munmap(plain_, max_plain_bytes);
    if (events_ != nullptr) munmap(events_, max_events_per_chunk * sizeof(Event));
    if (images_ != nullptr) munmap(images_, images_bytes);
  }

  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  [[nodiscard]] bool open(const char* path, Problem& problem) {
    path_ = path;
    const int file = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    // Not fstat, which is a function in glibc only since 2.33.
    struct statx status = {};
    if (file < 0 || statx(file, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE, &status) != 0) {
      const int error_number = errno;
      if (file >= 0) close(file);
      return refuse(problem, "cannot read '%.200s': %s.", path, std::strerror(error_number));
    }
    const bool is_file = S_ISREG(status.stx_mode);
    if (!is_file || status.stx_size < sizeof zstd_magic) {
      close(file);
      return refuse(problem,
                    "'%.200s' is not a trace: it is %s; give a file that `tsmalloc record` wrote.",
                    path, is_file ? "too short" : "not a regular file");
    }
    void* const mapped = mmap(nullptr, status.stx_size, PROT_READ, MAP_PRIVATE, file, 0);
    const int error_number = errno;
    close(file);
    if (mapped == MAP_FAILED) {
      return refuse(problem, "cannot map '%.200s': %s.", path, std::strerror(error_number));
    }
    file_ = static_cast<const unsigned char*>(mapped);
    file_bytes_ = status.stx_size;
    if (std::memcmp(file_, former_magic, sizeof former_magic) == 0) {
      return refuse(problem, "'%.200s' is a trace of an older version; record it again.", path);
    }
    if (std::memcmp(file_, zstd_magic, sizeof zstd_magic) != 0) {
      return refuse(problem, "'%.200s' is not a trace; give a file that `tsmalloc record` wrote.",
                    path);
    }
    work_bytes_ = ZSTD_estimateDCtxSize();
    work_ = map_zeroes(work_bytes_);
    plain_ = static_cast<unsigned char*>(map_zeroes(max_plain_bytes));
    events_ = static_cast<Event*>(map_zeroes(max_events_per_chunk * sizeof(Event)));
    static_assert(sizeof(ImageState) * max_images <= images_bytes);
    images_ = static_cast<ImageState*>(map_zeroes(images_bytes));
    if (work_ == nullptr || plain_ == nullptr || events_ == nullptr || images_ == nullptr) {
      return refuse(problem, "out of memory while reading '%.200s'.", path);
    }
    decompressor_ = ZSTD_initStaticDCtx(work_, work_bytes_);
    return true;
  }

  enum class ReadStatus : std::uint8_t { chunk, end, problem };

  ReadStatus next(Problem& problem) {
    if (at_ == file_bytes_) return ReadStatus::end;
    if (is_finished_) {
      refuse(problem, "'%.200s' is damaged: it has data after its end; %s.", path_, remedy);
      return ReadStatus::problem;
    }
    const std::size_t begin = at_;
    if (!unpack(problem)) return ReadStatus::problem;
    if (const char* const wrong = check()) {
      refuse(problem, "'%.200s' is damaged: %s, in the chunk at byte %zu; %s.", path_, wrong, begin,
             remedy);
      return ReadStatus::problem;
    }
    return ReadStatus::chunk;
  }

  void rewind() {
    at_ = 0;
    image_count_ = 0;
    event_count_ = 0;
    is_finished_ = false;
  }

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

  bool unpack(Problem& problem) {
    const unsigned char* const frame = file_ + at_;
    const std::size_t left = file_bytes_ - at_;
    const std::size_t packed = ZSTD_findFrameCompressedSize(frame, left);
    const unsigned long long plain = ZSTD_getFrameContentSize(frame, left);
    if (ZSTD_isError(packed) != 0) {
      const bool is_cut = ZSTD_getErrorCode(packed) == ZSTD_error_srcSize_wrong;
      return refuse(problem, "'%.200s' is %s at byte %zu; %s.", path_,
                    is_cut ? "truncated in the chunk" : "damaged", at_, remedy);
    }
    if (plain < sizeof(ChunkHeader) || plain > max_plain_bytes) {
      return refuse(problem, "'%.200s' is damaged: invalid chunk size at byte %zu; %s.", path_, at_,
                    remedy);
    }
    const std::size_t unpacked =
        ZSTD_decompressDCtx(decompressor_, plain_, max_plain_bytes, frame, packed);
    if (ZSTD_isError(unpacked) != 0 || unpacked != plain) {
      return refuse(problem, "'%.200s' is damaged in the chunk at byte %zu; %s.", path_, at_,
                    remedy);
    }
    plain_bytes_ = unpacked;
    at_ += packed;
    return true;
  }

  // Returns null, or what is wrong with the chunk.
  const char* check() {
    const ChunkHeader& found = header();
    if (std::memcmp(found.magic, magic, sizeof magic) != 0)
      return "a chunk has a wrong magic number";
    if (found.version != version) return "a chunk has an unknown version";
    const std::size_t bytes = plain_bytes_ - sizeof found;
    const bool is_open = found.image < image_count_ && !images_[found.image].has_ended;
    switch (found.type) {
      case ChunkType::image:
        if (bytes != sizeof(ImageBegin)) break;
        return check_image();
      case ChunkType::events:
        if (found.count == 0 || found.count > max_events_per_chunk) break;
        if (bytes != found.count * sizeof(Event)) break;
        if (!is_open) return "events belong to no process";
        return check_events();
      case ChunkType::image_end:
        if (bytes != sizeof(ImageEnd)) break;
        if (!is_open || image_end().events != images_[found.image].events) {
          return "a process does not have the number of events that it states";
        }
        images_[found.image].has_ended = true;
        return nullptr;
      case ChunkType::trace_end: {
        if (bytes != sizeof(TraceEnd)) break;
        if (found.image != 0) return "its end belongs to a process";
        TraceEnd end;
        std::memcpy(&end, body(), sizeof end);
        if (end.images != image_count_ || end.events != event_count_) {
          return "it does not have the number of events that it states";
        }
        is_finished_ = true;
        return nullptr;
      }
      default:
        return "a chunk has an unknown type";
    }
    return "a chunk does not have the size that it states";
  }

  const char* check_image() {
    const ImageBegin& begin = image_begin();
    if (header().image != image_count_ || image_count_ == max_images) {
      return "processes are not in order";
    }
    if (begin.birth > Birth::orphan) return "a process started in an unknown way";
    if (begin.parent != no_image && begin.parent >= image_count_) return "a process has no parent";
    if (begin.program[name_bytes - 1] != '\0' || begin.allocator[name_bytes - 1] != '\0') {
      return "a name is not terminated";
    }
    if (begin.birth == Birth::fork) {
      if (begin.parent == no_image) return "a process has no parent";
      ImageState& parent = images_[begin.parent];
      if (parent.has_ended || parent.forking != 0 || parent.events != begin.fork_event) {
        return "a process was not forked at a fork of its parent";
      }
      parent.forking = image_count_ + 1;
    }
    images_[image_count_++] = {.events = 0, .threads = 1, .forking = 0, .has_ended = false};
    return nullptr;
  }

  const char* check_events() {
    const ChunkHeader& found = header();
    ImageState& image = images_[found.image];
    if (found.first != image.events) return "events are not in order";
    auto* const to = reinterpret_cast<unsigned char*>(events_);
    const unsigned char* from = body();
    for (std::size_t byte = 0; byte < sizeof(Event); ++byte) {
      for (std::size_t i = 0; i < found.count; ++i) to[i * sizeof(Event) + byte] = *from++;
    }
    event_count_ += found.count;
    for (const Event& event : events()) {
      if (const char* const wrong = check_event(event, image)) return wrong;
    }
    image.events += found.count;
    return nullptr;
  }

  const char* check_event(const Event& event, ImageState& image) const {
    if (event.kind >= Kind::count || event.reserved != 0) return "an event has an unknown kind";
    if (event.log2_alignment > max_log2_alignment) return "an alignment is impossible";
    if (has_object(event.kind) && event.slot >= slots_below(event_count_)) {
      return "a slot is too high";
    }
    if (image.forking != 0) {
      if (event.kind != Kind::fork || event.slot != image.forking - 1) {
        return "a process was not forked at a fork of its parent";
      }
      image.forking = 0;
    }
    if (event.kind != Kind::thread_begin) {
      return event.thread < image.threads ? nullptr : "a thread acts before it starts";
    }
    if (event.thread != image.threads || image.threads == max_threads ||
        event.slot >= event.thread) {
      return "threads are not in order";
    }
    ++image.threads;
    return nullptr;
  }

  const char* path_ = "";
  const unsigned char* file_ = nullptr;
  std::size_t file_bytes_ = 0;
  std::size_t at_ = 0;
  void* work_ = nullptr;  // of the decompressor
  std::size_t work_bytes_ = 0;
  ZSTD_DCtx* decompressor_ = nullptr;
  unsigned char* plain_ = nullptr;
  std::size_t plain_bytes_ = 0;
  Event* events_ = nullptr;
  ImageState* images_ = nullptr;
  std::uint32_t image_count_ = 0;
  std::uint64_t event_count_ = 0;
  bool is_finished_ = false;
};

}  // namespace ts::trace
