// The file that a Writer writes.
//
// Why it exists: a disk fills up in the middle of a chunk, and then the file must end with the last
// whole one. What it refuses to do: overwrite unasked, seek, wait for a reader.
#pragma once

#include <cstdint>
#include <string>

#include "trace/format/bytes.h"

namespace ts::trace {

class OutputFile {
 public:
  OutputFile(const std::string& path, bool force);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // All of it or, with an Error, nothing. After an Error every further call is one.
  void append(ByteSpan bytes);
  // What was appended is on its way to the disk.
  void start_writeback();
  void close();

  std::uint64_t size() const { return size_; }

 private:
  [[noreturn]] void fail(int error_number);

  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  int failed_with_ = 0;
};

}  // namespace ts::trace
