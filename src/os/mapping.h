// What the files share that ask the system for memory, or of it. Inside os/.
#pragma once

#include <cerrno>
#include <cstddef>

namespace ts::os {

// Keeps errno around functions of the C library: the caller decides on it after a refusal, and a
// request that succeeds after a refused one leaves it alone. (System calls by system_call.h do not
// change it.)
class ErrnoKept {
 public:
  ErrnoKept() noexcept = default;
  ~ErrnoKept() { errno = kept_; }
  ErrnoKept(const ErrnoKept&) = delete;
  ErrnoKept& operator=(const ErrnoKept&) = delete;

 private:
  int kept_ = errno;
};

// mmap(2) of memory without a file: the address, or an error's number, negated.
long map_pages(void* at, std::size_t bytes, int protection, int flags) noexcept;

// The system grants the address if the whole range is free. (MAP_FIXED_NOREPLACE means the same,
// but old systems do not know it, and ThreadSanitizer makes of it a mapping at null.)
bool place(void* begin, std::size_t bytes, int protection, int flags) noexcept;

}  // namespace ts::os
