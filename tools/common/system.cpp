// Clocks, text files and giving up; see system.h.
#include "common/system.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ts {
bool counts_at_one_rate() {
#ifdef __x86_64__
  constexpr unsigned power_leaf = 0x8000'0007;
  constexpr unsigned invariant_bit = 1U << 8;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(power_leaf, &a, &b, &c, &d) != 0 && (d & invariant_bit) != 0;
#else
  return false;
#endif
}

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

}  // namespace ts
