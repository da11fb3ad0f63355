// Makes a plan from a trace: what each thread does, and what it waits for.
//
// The trace is read twice: to choose the program, and to write its operations. That takes 24 bytes
// for each call, and the tables of live objects.
#pragma once

#include <cstdint>

#include "replay/pages.h"
#include "replay/plan.h"
#include "trace/format.h"
#include "trace/reader.h"

namespace ts::plan {

struct LoadSettings {
  std::int64_t image = -1;      // number of the program; -1: the one with the most events
  std::uint64_t window = 1000;  // how far ahead of others, in events, a thread may run; 0: no limit
  bool with_times = false;
};

class Plan {
 public:
  Plan() = default;
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // False: `problem` says what is wrong with the trace or the settings.
  [[nodiscard]] bool load(const char* path, const LoadSettings& settings, trace::Problem& problem);

  std::uint32_t images() const { return image_count_; }
  const Image& image(std::size_t place) const { return images_[place]; }
  std::uint64_t window() const { return window_; }
  const char* program() const { return program_; }
  bool is_finished() const { return is_finished_; }  // whether the recorder finished

 private:
  friend class Loader;

  Image* images_ = nullptr;
  std::uint32_t image_count_ = 0;
  std::uint64_t window_ = 0;
  bool is_finished_ = false;
  char program_[trace::name_bytes] = {};
};

}  // namespace ts::plan
