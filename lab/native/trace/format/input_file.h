// The file that a Reader reads.
//
// Why it exists: every way in which a name is not that of a readable file has its own remedy, and a
// file may shrink while it is read. What it refuses to do: map it, since then a file that shrinks
// would kill the program; wait for a FIFO's writer.
#pragma once

#include <cstdint>
#include <string>

#include "trace/format/bytes.h"

namespace ts::trace {

class InputFile {
 public:
  explicit InputFile(const std::string& path);  // throws Error
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const { return size_; }  // when it was opened

  // `count` bytes into `to`; fewer if the file has become shorter or the device fails. Null, or
  // what happened.
  const char* read(std::uint64_t offset, std::size_t count, Bytes& to) const;

 private:
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace ts::trace
