// Files that the library writes, and what it reads of /proc: without stdio, memory, or cancellation
// points.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::os {

// A new file under its path, `.PID` and `.part`, until it is whole: nothing reads a part of it, and
// of two processes the last one's stays. Readable by its user alone. A link, a device or a pipe in
// its place stays, and is an error. A limit of its size is one, too, and not a signal, if one
// thread makes, writes and keeps the file.
class AtomicFile {
 public:
  // The path stays the caller's until the file is closed.
  explicit AtomicFile(const char* path) noexcept;
  // Without keep(), nothing of it stays.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // 0, or why it cannot be written.
  int error() const noexcept { return error_; }
  int descriptor() const noexcept { return descriptor_; }
  // Closes the file, and gives it its own name: 0, or an error.
  int keep() noexcept;

 private:
  int close() noexcept;

  int descriptor_ = -1;
  int error_ = 0;
  const char* path_;
  std::uint64_t signals_ = 0;   // that the thread blocked before
  bool takes_signals_ = false;  // none waited before
};

// What an error of a file means: "no such folder", or "error N" of others.
struct ErrorText {
  char text[48];
};
ErrorText describe_error(int error) noexcept;

// The name of the process, as /proc/self/comm has it, and the path of its program, or of another
// process's, as it was when that began; "" if unknown.
void read_command(char* name, std::size_t size) noexcept;
void read_program(char* path, std::size_t size, const char* link = "/proc/self/exe") noexcept;

// Nanoseconds since 1970.
std::uint64_t unix_nanoseconds() noexcept;

}  // namespace ts::os
