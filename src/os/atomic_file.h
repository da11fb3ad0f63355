// Writing files and reading /proc without stdio, memory allocation or cancellation points.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::os {

// A file that is written under its path plus `.PID` and `.part` and renamed when complete, so that
// no reader sees a part of it, and if two processes write it, the later one wins. Only the user can
// read it. A link, device or pipe at the path is left in place and is an error. Exceeding the file
// size limit is an error too, rather than a signal, if one thread opens, writes and keeps the file.
class AtomicFile {
 public:
  // The path must stay valid until the file is closed.
  explicit AtomicFile(const char* path) noexcept;
  // Without keep(), deletes the file.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // 0, or the errno value of what went wrong.
  int error() const noexcept { return error_; }
  int descriptor() const noexcept { return descriptor_; }
  // Closes the file and renames it to its path: 0, or an errno value.
  int keep() noexcept;

 private:
  int close() noexcept;

  int descriptor_ = -1;
  int error_ = 0;
  const char* path_;
  std::uint64_t signals_ = 0;   // that the thread had blocked before
  bool takes_signals_ = false;  // none was pending before
};

// Describes an errno value from a file operation: "no such directory", for instance, or "error N".
struct ErrorText {
  char text[48];
};
ErrorText describe_error(int error) noexcept;

// The process's name, as in /proc/self/comm, and the path of its program (or of another process's,
// through `link`) as it was when the program started; "" if unknown.
void read_command(char* name, std::size_t size) noexcept;
void read_program(char* path, std::size_t size, const char* link = "/proc/self/exe") noexcept;

// Nanoseconds since 1970.
std::uint64_t unix_nanoseconds() noexcept;

}  // namespace ts::os
