// Writes events into a trace file, as long as there is room.
//
// A full disk must not end the recorded program. The first failure is reported at once, what was
// written before stays readable, and the rest is lost.
#pragma once

#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "common/system.h"
#include "trace/writer.h"

namespace ts::record {

class TraceSink {
 public:
  // Overwrites an existing file. Nothing is written before this call.
  void open(const std::string& path) {
    try {
      writer_.emplace(path);
    } catch (const std::exception& error) {
      fail(error);
    }
  }

  // Returns its number.
  std::uint32_t begin_image(const trace::Image& image) {
    attempt([&] { writer_->begin_image(image); });
    return images_++;
  }
  void add(std::uint32_t image, const trace::Event& event) {
    attempt([&] { writer_->add(image, event); });
  }
  void end_image(std::uint32_t image, trace::End end, std::uint64_t end_ns) {
    attempt([&] { writer_->end_image(image, end, end_ns); });
  }

  void flush() {
    attempt([&] { writer_->flush(); });
  }
  void finish() {
    attempt([&] { writer_->finish(); });
  }

  std::uint64_t bytes() const { return bytes_; }
  const std::string& failure() const { return failure_; }  // "": none

 private:
  template <class Action>
  void attempt(Action action) {
    if (!writer_.has_value()) return;
    try {
      action();
      bytes_ = writer_->bytes_written();
    } catch (const std::exception& error) {
      fail(error);
    }
  }

  void fail(const std::exception& error) {
    failure_ = error.what();
    static_cast<void>(std::fprintf(stderr, "%s: %s\n", tool_name(), error.what()));
    writer_.reset();
  }

  std::optional<trace::Writer> writer_;  // none after a failure
  std::uint32_t images_ = 0;
  std::uint64_t bytes_ = 0;
  std::string failure_;
};

}  // namespace ts::record
