// The contents of a trace: events, and the images in which they happened.
//
// Why it exists: recorder, planner and analyses agree here on what was recorded. What it refuses
// to do: hold contents of memory, addresses or paths; a trace can be given away.
//
// Terms. An *image* is one program image in one process (a new one at exec, and in a forked
// child); images are numbered in the order in which they begin. An *event* is one call, in the
// global order of its image, numbered from 0 in each image. An *object* is what an allocation
// makes; objects of an image are numbered in the order of their allocations, from
// Image::first_object on, without gaps. A resize keeps the object. A forked child inherits the
// objects live in its parent, with their numbers. A *thread* is numbered from 0 within its image,
// by birth.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace ts::trace {

enum class Kind : std::uint8_t {
  malloc,        // malloc, operator new (unaligned)
  calloc,        //
  aligned,       // memalign and its kin, aligned operator new; log2_alignment says to what
  realloc,       // of an object: size is the new one. realloc(NULL, n) is a malloc
  free,          // free, operator delete of every form; realloc(p, 0) that frees is a free
  refused,       // an allocation that returned null: its size, and no object
  thread_begin,  // thread: the new one; object: the thread that created it
  thread_end,    //
  fork,          // object: number of the child's image; an event of the parent
  count          // how many kinds there are
};

constexpr bool makes_object(Kind kind) { return kind <= Kind::aligned; }
constexpr bool refers_to_object(Kind kind) { return kind == Kind::realloc || kind == Kind::free; }
constexpr bool refers_to_other(Kind kind) {
  return kind == Kind::thread_begin || kind == Kind::fork;
}
constexpr bool has_size(Kind kind) { return kind <= Kind::realloc || kind == Kind::refused; }

constexpr std::string_view name(Kind kind) {
  constexpr std::string_view names[] = {"malloc", "calloc",  "aligned",      "realloc",
                                        "free",   "refused", "thread_begin", "thread_end",
                                        "fork",   "unknown"};
  return names[static_cast<std::size_t>(std::min(kind, Kind::count))];
}

struct Event {
  Kind kind = Kind::malloc;
  std::uint8_t log2_alignment = 0;  // of aligned, else 0
  std::uint32_t thread = 0;         // of the call
  std::uint64_t object =
      0;  // of malloc, calloc, aligned (its new number), realloc, free; see Kind for
          // thread_begin and fork; else 0
  std::uint64_t size = 0;     // requested bytes (calloc: the product); 0 where has_size is false
  std::uint64_t time_ns = 0;  // since the image began; not always rising, since the order of events
                              // is that of their tickets

  friend bool operator==(const Event&, const Event&) = default;
};

inline constexpr std::uint32_t no_image = std::numeric_limits<std::uint32_t>::max();

struct Image {
  enum class Birth : std::uint8_t { root, fork, exec, unknown };  // unknown: that chunk is lost
  enum class End : std::uint8_t { unknown, exited, exec, killed };

  std::uint32_t number = 0;
  std::uint32_t parent = no_image;  // no_image for a root
  Birth birth = Birth::root;
  std::uint64_t fork_event = 0;    // of the parent, for a fork
  std::uint64_t first_object = 0;  // number of its first own object
  std::uint64_t begin_ns = 0;      // since the recording began
  std::string program;             // base names: no paths in a trace
  std::string allocator;

  // Known at its end. Where that is lost, what the chunks that are left tell.
  std::uint64_t events = 0;
  std::uint64_t objects = 0;  // its own, without inherited ones
  std::uint64_t threads = 0;  // its first included, whatever that did
  std::uint64_t end_ns = 0;   // since the image began
  End end = End::unknown;
};

constexpr std::string_view name(Image::Birth birth) {
  constexpr std::string_view names[] = {"root", "fork", "exec", "unknown"};
  return names[static_cast<std::size_t>(std::min(birth, Image::Birth::unknown))];
}
constexpr std::string_view name(Image::End end) {
  constexpr std::string_view names[] = {"unknown", "exited", "exec", "killed"};
  return names[static_cast<std::size_t>(end) % std::size(names)];
}

// Nothing in a trace is larger; what claims to be is damaged. They keep every sum below from
// overflowing, and a reader's memory small whatever a file says.
inline constexpr std::uint32_t max_images = 1U << 20;
inline constexpr std::uint32_t max_threads = 1U << 22;   // what Linux can number
inline constexpr std::uint64_t max_events = 1ULL << 48;  // of an image, and objects likewise
inline constexpr std::uint8_t max_log2_alignment = 63;
inline constexpr std::size_t max_name_bytes = 255;

}  // namespace ts::trace
