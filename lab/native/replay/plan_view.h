// A plan in memory: its tables, and the order in which its operations were recorded.
//
// Why it exists: replay and the tests of the planner read a plan; both must find in
// it what plan.h says, or be told why not. What it refuses to do: trust. Every table lies within
// the file before a pointer to it is given; whether its contents make sense is check_plan's affair.
#pragma once

#include <cstddef>
#include <cstdint>

#include "replay/plan.h"

namespace ts::plan {

// The fault of a plan, and its remedy.
struct Problem {
  char text[640] = {};
};
[[gnu::format(printf, 2, 3)]] bool refuse(Problem& problem, const char* pattern, ...);  // false

class View {
 public:
  View() = default;
  ~View();
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  // Maps the file. False: `problem` says why not.
  [[nodiscard]] bool open(const char* path, Problem& problem);

  const Header& header() const { return *at<Header>(0); }
  std::uint32_t images() const { return header().images; }
  const Image& image(std::size_t place) const { return at<Image>(header().images_offset)[place]; }

  const Thread* threads(const Image& image) const { return at<Thread>(image.threads_offset); }
  const Operation* operations(const Image& image) const {
    return at<Operation>(image.operations_offset);
  }
  const Epoch* epochs(const Image& image) const { return at<Epoch>(image.epochs_offset); }
  const Run* runs(const Image& image) const { return at<Run>(image.runs_offset); }
  // Null where the plan has none.
  const std::uint64_t* times(const Image& image) const { return optional(image.times_offset); }

 private:
  template <class T>
  const T* at(std::uint64_t offset) const {
    return reinterpret_cast<const T*>(base_ + offset);
  }
  const std::uint64_t* optional(std::uint64_t offset) const {
    return offset != 0 ? at<std::uint64_t>(offset) : nullptr;
  }
  bool check_header(const char* path, Problem& problem) const;
  bool check_image(const char* path, std::size_t place, Problem& problem) const;
  bool holds(std::uint64_t offset, std::uint64_t count, std::size_t size) const;

  unsigned char* base_ = nullptr;
  std::uint64_t bytes_ = 0;
};

// visit(thread, index, operation) for each operation, in the recorded order; the index is that into
// the image's operations and times. cursors: std::uint64_t[image.threads], any contents.
// False: the runs are not those of the threads' operations, and not all have been visited.
template <class Visit>
bool in_recorded_order(const View& view, const Image& image, std::uint64_t* cursors,
                       Visit&& visit) {
  const Thread* const threads = view.threads(image);
  const Operation* const operations = view.operations(image);
  const Run* const runs = view.runs(image);
  for (std::size_t t = 0; t < image.threads; ++t) cursors[t] = 0;
  std::uint64_t visited = 0;
  for (std::uint64_t r = 0; r < image.runs; ++r) {
    const std::uint32_t thread = runs[r].thread;
    if (thread >= image.threads || runs[r].operations == 0) return false;
    std::uint64_t& cursor = cursors[thread];
    if (runs[r].operations > threads[thread].operations - cursor) return false;
    for (std::uint32_t i = 0; i < runs[r].operations; ++i, ++cursor, ++visited) {
      const std::uint64_t index = threads[thread].first_operation + cursor;
      visit(thread, index, operations[index]);
    }
  }
  std::uint64_t all = 0;
  for (std::size_t t = 0; t < image.threads; ++t) all += threads[t].operations;
  return visited == all;
}

}  // namespace ts::plan

namespace ts::replay {

// Whether the plan makes sense: all of its operations, of the first image and of all that are forked
// from it, in the recorded order (plan_check.cpp). False: `problem` says what is wrong.
[[nodiscard]] bool check_plan(const plan::View& view, plan::Problem& problem);

}  // namespace ts::replay
