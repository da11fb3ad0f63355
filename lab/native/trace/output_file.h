// The file that a Writer writes. If the disk fills up in the middle of a chunk, the file is
// truncated to its last whole one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace ts::trace {

// Its text says which file, what is wrong, and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class OutputFile {
 public:
  OutputFile(const std::string& path, bool force);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Appends all of it or, with an Error, nothing. After an Error every further call fails too.
  void append(const void* bytes, std::size_t count);
  // Starts writing what was appended to the disk.
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
