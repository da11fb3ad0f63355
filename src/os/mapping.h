// Shared by the files that allocate memory from the kernel or query it. For use inside os/.
#pragma once

#include <cerrno>
#include <cstddef>

namespace ts::os {

// Preserves errno around C library functions: the caller sets it after a refusal, and a request
// that succeeds after a refused one must not change it. (Calls through system_call.h do not touch
// it.)
class ErrnoKept {
 public:
  ErrnoKept() noexcept = default;
  ~ErrnoKept() { errno = kept_; }
  ErrnoKept(const ErrnoKept&) = delete;
  ErrnoKept& operator=(const ErrnoKept&) = delete;

 private:
  int kept_ = errno;
};

// mmap(2) of anonymous memory: the address, or a negated errno value.
long map_pages(void* at, std::size_t bytes, int protection, int flags) noexcept;

// Maps exactly this range, if all of it is free. (MAP_FIXED_NOREPLACE means the same, but old
// kernels do not know it, and ThreadSanitizer turns it into a mapping at null.)
bool place(void* begin, std::size_t bytes, int protection, int flags) noexcept;

}  // namespace ts::os
