#include "record/collector/trace_sink.h"

#include <cstdio>
#include <exception>

#include "common/system.h"

namespace ts::record {

void TraceSink::open(const std::string& path) {
  try {
    writer_.emplace(path, true);
  } catch (const std::exception& error) {
    fail(error);
  }
}

template <class Action>
void TraceSink::attempt(Action action) {
  if (!writer_.has_value()) return;
  try {
    action();
    bytes_ = writer_->bytes_written();
  } catch (const std::exception& error) {
    fail(error);
  }
}

void TraceSink::fail(const std::exception& error) {
  failure_ = error.what();
  static_cast<void>(std::fprintf(stderr, "%s: %s\n", tool_name(), error.what()));
  writer_.reset();
}

std::uint32_t TraceSink::begin_image(const trace::Image& image) {
  attempt([&] { writer_->begin_image(image); });
  return images_++;
}

// Not through attempt: this is what all events come through.
void TraceSink::add(std::uint32_t image, const trace::Event& event) {
  if (!writer_.has_value()) return;
  try {
    writer_->add(image, event);
  } catch (const std::exception& error) {
    fail(error);
  }
}

void TraceSink::end_image(std::uint32_t image, trace::Image::End end, std::uint64_t end_ns) {
  attempt([&] { writer_->end_image(image, end, end_ns); });
}

void TraceSink::flush() {
  attempt([&] { writer_->flush(); });
}

void TraceSink::finish() {
  attempt([&] { writer_->finish(); });
}

}  // namespace ts::record
