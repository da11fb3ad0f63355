// Clocks, text files and fatal errors; see system.h.
#include "common/system.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ts {
void fail_internal(const char* context, int error_number) {
  dprintf(STDERR_FILENO, "%s: %s: %s\n", tool_name(), context, std::strerror(error_number));
  _exit(exit_internal);
}

// The attribute makes the compiler check every call, which no function template could have.
// NOLINTNEXTLINE(cert-dcl50-cpp)
void format(char* buffer, std::size_t size, const char* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is initialised, in the line above
  if (std::vsnprintf(buffer, size, pattern, arguments) < 0) buffer[0] = '\0';
  va_end(arguments);
}

PieceReader::PieceReader(const char* path) : descriptor_{open(path, O_RDONLY | O_CLOEXEC)} {}

PieceReader::~PieceReader() {
  if (is_open()) close(descriptor_);
}

bool PieceReader::fill() {
  std::memmove(buffer_, buffer_ + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (!is_open() || end_ == capacity) return false;
  ssize_t count = 0;
  do {
    count = read(descriptor_, buffer_ + end_, capacity - end_);
  } while (count < 0 && errno == EINTR);
  if (count <= 0)
    return false;  // a process that ended between open and read counts as an end of file
  end_ += static_cast<std::size_t>(count);
  return true;
}

char* PieceReader::next(char delimiter) {
  void* found = nullptr;
  do {
    found = std::memchr(buffer_ + begin_, delimiter, end_ - begin_);
  } while (found == nullptr && fill());
  if (found == nullptr && begin_ == end_) return nullptr;
  char* const piece = buffer_ + begin_;
  char* const stop = found != nullptr ? static_cast<char*>(found) : buffer_ + end_;
  *stop = '\0';
  begin_ = found != nullptr ? static_cast<std::size_t>(stop - buffer_) + 1 : end_;
  return piece;
}

std::int64_t number_after(const char* line, const char* key) {
  const std::size_t length = std::strlen(key);
  return std::strncmp(line, key, length) == 0 ? std::strtoll(line + length, nullptr, 10) : -1;
}

std::int64_t bytes_after(const char* path, const char* key) {
  PieceReader text{path};
  while (const char* const line = text.next('\n')) {
    if (const std::int64_t found = number_after(line, key); found >= 0) return found * 1024;
  }
  return -1;
}

}  // namespace ts
