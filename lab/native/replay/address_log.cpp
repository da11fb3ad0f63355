// See address_log.h.
#include "replay/address_log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace ts::replay {

int AddressLog::open(const char* path, std::uint64_t maximum, std::uint64_t frames) {
  if (path == nullptr) return 0;
  file_ = ::open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) return errno;
  bytes_ = (maximum + 1) * sizeof(LoggedAddress);
  // Allocates disk space, so that a full disk is an error here, and not a signal later.
  if (const int error = posix_fallocate(file_, 0, static_cast<off_t>(bytes_))) return error;
  void* const mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (mapped == MAP_FAILED) return errno;
  entries_ = static_cast<LoggedAddress*>(mapped);
  return frames_.open(path, frames, maximum);
}

int AddressLog::close() {
  if (entries_ == nullptr) return 0;
  const int error = frames_.close(count_.load(std::memory_order_relaxed));
  munmap(entries_, bytes_);
  entries_ = nullptr;
  const std::uint64_t used = count_.load(std::memory_order_relaxed) * sizeof(LoggedAddress);
  const bool is_cut = ftruncate(file_, static_cast<off_t>(used)) == 0;
  return ::close(file_) == 0 && is_cut ? error : errno;
}

}  // namespace ts::replay
