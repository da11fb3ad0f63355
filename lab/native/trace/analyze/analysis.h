// The use of memory by an image: every figure, with its definition.
//
// Why it exists: words like "temporary" and "lifetime" are used loosely; here each has one meaning,
// which the tests check against a slow and obvious second implementation. What it refuses to do:
// hold the trace in memory, or judge. It reads the image twice (first_reading.h comes first) and
// needs memory for what lives at one time: at most 28 bytes an event, whatever the trace; mostly far
// less (birth_table.h).
//
// Definitions.
//   allocation    a malloc, calloc or aligned event: it makes an object. A resize makes none.
//   lifetime      of an object that is freed, from its allocation to its free: in events (the
//                 difference of their numbers, so at least 1), in nanoseconds (0 where the clocks
//                 of two threads differ the wrong way) and in bytes allocated meanwhile.
//   allocated bytes  by all threads: the size of each allocation, and what each resize adds to its
//                 object.
//   temporary     an object that is freed by the thread that allocated it, before that thread's
//                 next allocation (Heaptrack's notion). A resize in between does not matter.
//   cross-thread  a free by another thread than the one that allocated the object.
//   inherited     an object that was live in the parent when it forked this image. Its thread and
//                 its birth are the parent's affair, so it has no lifetime here and is in no
//                 cross-thread figure; it counts in live bytes, at the peak and in what is left.
//   live bytes    the sum of the requested sizes of live objects.
//   peak          the first event after which live bytes are highest.
//   left          what is live at the image's end, own and inherited objects apart.
//   chain         an object that is resized: its length is the number of resizes, its growth the
//                 last size over the first. Of inherited ones only their steps are known.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trace/analyze/first_reading.h"
#include "trace/analyze/histogram.h"
#include "trace/analyze/size_counts.h"
#include "trace/format/reader.h"

namespace ts::trace {

struct ThreadSums {
  std::uint64_t events = 0;
  Amount allocations;
  std::uint64_t resizes = 0;
  Amount frees;          // whichever thread allocated the object, inherited ones included
  Amount foreign_frees;  // of those, objects that another thread of the image allocated
  Amount given_away;     // its objects that another thread freed
  std::uint64_t temporaries = 0;
  Amount live;  // of what it allocated
  Amount at_peak;
  std::uint64_t first_ns = 0;  // of its own events
  std::uint64_t last_ns = 0;
  std::uint64_t newest = 0;  // the object that it allocated last; meaningless without allocations
};

// How lifetimes, in one of the three measures, are distributed.
struct Lifetimes {
  Histogram histogram;
  HeatMap by_size;  // the size at the free
};

struct Chains {
  std::uint64_t resizes = 0;  // steps, those of inherited objects included
  std::uint64_t shrunk = 0;
  std::uint64_t unchanged = 0;
  std::uint64_t grown = 0;
  std::uint64_t from_zero = 0;  // grown, but from size 0: no factor
  // Of steps that grew from another size than 0: new over old, in thousandths.
  Histogram step_growth;
  std::uint64_t longest = 0;
  Histogram lengths;  // of own objects that were resized; their last sizes as bytes
  // Of those, where the first size is not 0: last over first, in thousandths.
  Histogram growth;
};

struct CurvePoint {
  std::uint64_t event = 0;  // the last one of the stretch
  std::uint64_t time_ns = 0;
  std::uint64_t live_bytes = 0;     // at its end
  std::uint64_t highest_bytes = 0;  // within it
  std::uint64_t live_objects = 0;   // at its end
};

struct Analysis {
  static constexpr std::uint64_t most_points = 1'000;

  std::array<std::uint64_t, static_cast<std::size_t>(Kind::count)> calls{};
  std::array<std::uint64_t, max_log2_alignment + 1> alignments{};  // of aligned allocations
  SizeCounts sizes;
  Amount allocations;
  std::uint64_t grown_bytes = 0;  // by resizes
  std::uint64_t shrunk_bytes = 0;
  std::uint64_t refused_bytes = 0;  // asked for in vain

  Amount frees;  // of own objects
  Amount inherited_frees;
  Amount cross_thread_frees;
  Amount temporaries;
  Lifetimes in_ns;
  Lifetimes in_events;
  Lifetimes in_bytes;
  Chains chains;

  // Frees and resizes of objects that never were: only where events are lost.
  std::uint64_t unknown_frees = 0;
  std::uint64_t unknown_resizes = 0;

  std::uint64_t peak_ns = 0;
  Amount at_peak;
  Amount inherited_at_peak;
  Amount left_own;
  Amount left_inherited;

  std::vector<CurvePoint> curve;
  std::vector<ThreadSums> threads;
};

// `found`: the first reading of the same image.
Analysis analyse(const Reader& reader, const Image& image, const FirstReading& found);

}  // namespace ts::trace
