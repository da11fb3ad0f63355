// A trace, byte by byte; docs/formats/trace.md describes the file for readers in any language.
//
// A trace is a sequence of zstd frames. Each frame contains one chunk: a ChunkHeader followed by
// data of its type. Numbers are little-endian, as on every machine that tsmalloc runs on.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>

namespace ts::trace {

static_assert(std::endian::native == std::endian::little);

enum class Kind : std::uint8_t {
  malloc,        // malloc, operator new (unaligned), realloc of null
  calloc,        // size: the product
  aligned,       // memalign and similar, aligned operator new; log2_alignment has the alignment
  realloc,       // size: the new one
  free,          // free, operator delete of every form, a realloc to 0 that frees
  refused,       // an allocation that returned null: its size, no object
  thread_begin,  // thread: the new one; slot: the thread that created it
  thread_end,    //
  fork,          // slot: number of the child's image; an event of the parent
  count          // how many kinds there are
};

constexpr bool has_object(Kind kind) { return kind <= Kind::free; }

constexpr const char* name(Kind kind) {
  constexpr const char* names[] = {"malloc",  "calloc",       "aligned",    "realloc", "free",
                                   "refused", "thread_begin", "thread_end", "fork",    "unknown"};
  return names[static_cast<std::size_t>(std::min(kind, Kind::count))];
}

// One call. A chunk of events contains the first byte of each, then the second byte of each, and so
// on, which halves the size after zstd.
struct Event {
  std::uint64_t time_ns = 0;  // since the image began; may step back between threads
  std::uint64_t size = 0;     // requested bytes; 0 where the kind has none
  std::uint64_t site = 0;     // the call site; 0: not recorded
  std::uint32_t slot = 0;     // where the object lives; see Kind for thread_begin and fork; else 0
  std::uint32_t generation = 0;  // how many objects used the slot before this one
  std::uint32_t thread = 0;      // numbered within the image by birth, from 0
  Kind kind = Kind::malloc;
  std::uint8_t log2_alignment = 0;  // for aligned, else 0
  std::uint16_t reserved = 0;

  friend bool operator==(const Event&, const Event&) = default;
};
static_assert(sizeof(Event) == 40);

enum class ChunkType : std::uint16_t {
  image = 1,      // ImageBegin
  events = 2,     // count events, transposed
  image_end = 3,  // ImageEnd
  trace_end = 4   // TraceEnd; the last chunk
};

inline constexpr char magic[4] = {'T', 'S', 'T', 'R'};
inline constexpr std::uint16_t version = 2;

struct ChunkHeader {
  char magic[4];
  std::uint16_t version;
  ChunkType type;
  std::uint32_t image;
  std::uint32_t count;  // of events; else 0
  std::uint64_t first;  // number of the first event within its image; else 0
  std::uint64_t reserved;
};
static_assert(sizeof(ChunkHeader) == 32);

inline constexpr std::uint32_t no_image = std::numeric_limits<std::uint32_t>::max();
inline constexpr std::size_t name_bytes = 64;

enum class Birth : std::uint32_t {
  root,
  fork,   // the parent's next event is the fork; the child inherits all that is live there
  exec,   // a program that its parent started or became
  orphan  // forked, but the parent's events at that time are unknown: it inherits nothing
};
enum class End : std::uint32_t { unknown, exited, exec, killed };

struct ImageBegin {
  std::uint32_t parent;  // no_image: none
  Birth birth;
  std::uint64_t fork_event;  // of the parent, for a fork
  std::uint64_t begin_ns;    // since the recording began
  char program[name_bytes];  // base names, null-terminated: no paths in a trace
  char allocator[name_bytes];
};
static_assert(sizeof(ImageBegin) == 152);

struct ImageEnd {
  std::uint64_t events;
  std::uint64_t end_ns;  // since the image began
  std::uint32_t threads;
  End end;
};
static_assert(sizeof(ImageEnd) == 24);

struct TraceEnd {
  std::uint64_t events;  // of all images
  std::uint32_t images;
  std::uint32_t reserved;
};
static_assert(sizeof(TraceEnd) == 16);

constexpr const char* name(Birth birth) {
  constexpr const char* names[] = {"root", "fork", "exec", "orphan", "unknown"};
  return names[std::min<std::size_t>(static_cast<std::size_t>(birth), 4)];
}
constexpr const char* name(End end) {
  constexpr const char* names[] = {"unknown", "exited", "exec", "killed"};
  return names[static_cast<std::size_t>(end) % std::size(names)];
}

// These bound a reader's memory, whatever a file contains.
inline constexpr std::uint32_t max_events_per_chunk = 65'536;
inline constexpr std::uint32_t max_images = 1U << 20;
inline constexpr std::uint32_t max_threads = 1U << 22;  // what Linux can number
inline constexpr std::uint8_t max_log2_alignment = 63;

// New slots come in groups, so a trace of n events has fewer slots than this.
constexpr std::uint64_t slots_below(std::uint64_t events) { return 4 * events + 4; }

}  // namespace ts::trace
