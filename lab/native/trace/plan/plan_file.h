// The file that a plan is written into.
//
// Why it exists: a plan has a table for each thread, all of which grow at the same time, and none
// of which fits into memory. Each has its place in the file from the beginning, and a small buffer.
// What it refuses to do: leave half a plan behind. The header comes last, and an unfinished file is
// removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "replay/plan.h"

namespace ts::trace {

class PlanFile {
 public:
  // Refuses to overwrite a file unless `force` is set. Throws Error, as all of it does.
  PlanFile(std::string path, bool force);
  ~PlanFile();
  PlanFile(const PlanFile&) = delete;
  PlanFile& operator=(const PlanFile&) = delete;

  // A place for so many bytes; returns its offset.
  std::uint64_t reserve(std::uint64_t bytes);
  void write(std::uint64_t offset, const void* bytes, std::size_t count);

  // Writes the table of images and the header, and closes the file.
  void finish(const std::vector<plan::Image>& images, std::uint64_t window);

  std::uint64_t bytes() const { return end_; }

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string path_;
  int descriptor_;
  std::uint64_t end_ = plan::section_alignment;  // the header's page
};

[[noreturn]] void column_is_too_long();

// An array in the file, written from its first item to its last.
template <class T>
class Column {
 public:
  Column(PlanFile& file, std::uint64_t offset, std::uint64_t capacity, std::size_t buffer_bytes)
      : file_{&file}, offset_{offset}, capacity_{capacity}, buffered_{buffer_bytes / sizeof(T)} {
    static_assert(std::is_trivially_copyable_v<T>);
  }

  void add(const T& item) {
    if (size() == capacity_) column_is_too_long();
    buffer_.push_back(item);
    if (buffer_.size() > buffered_) flush();
  }
  T& last() { return buffer_.back(); }  // of those not yet flushed, of which there is always one
  std::uint64_t size() const { return written_ + buffer_.size(); }

  // Everything, and the buffer is gone.
  void finish() {
    write(buffer_.size());
    buffer_ = std::vector<T>{};
  }

 private:
  void flush() { write(buffer_.size() - 1); }
  void write(std::size_t count) {
    file_->write(offset_ + written_ * sizeof(T), buffer_.data(), count * sizeof(T));
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(count));
    written_ += count;
  }

  PlanFile* file_;
  std::uint64_t offset_;
  std::uint64_t capacity_;
  std::size_t buffered_;
  std::uint64_t written_ = 0;
  std::vector<T> buffer_;
};

}  // namespace ts::trace
