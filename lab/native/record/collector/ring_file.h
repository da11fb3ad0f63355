// Creates, maps and removes the file of the ring.
//
// The file must be fully allocated before a program writes into it, since a full file system would
// kill the program with SIGBUS. The next recorder removes the files of a killed one, recognized by
// a lock that dies with its holder.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>

#include "record/ring.h"
#include "trace/writer.h"

namespace ts::record {

inline constexpr char directory_prefix[] = "tsmalloc-record-";
inline constexpr char file_name[] = "ring";

// Where files are in memory, if there is such a place.
inline std::string parent_directory() {
  if (access("/dev/shm", W_OK | X_OK) == 0) return "/dev/shm";
  const char* const given = std::getenv("TMPDIR");
  return given != nullptr && *given != '\0' ? given : "/tmp";
}

// Of killed recorders: nobody holds their lock.
inline void remove_leftovers(const std::string& parent) {
  std::error_code ignored;
  for (const std::filesystem::directory_entry& entry :
       std::filesystem::directory_iterator{parent, ignored}) {
    if (!entry.path().filename().string().starts_with(directory_prefix)) continue;
    const std::string ring = (entry.path() / file_name).string();
    const int file = open(ring.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) continue;
    if (flock(file, LOCK_EX | LOCK_NB) == 0) {
      unlink(ring.c_str());
      rmdir(entry.path().c_str());
    }
    close(file);
  }
}

[[noreturn]] inline void fail_ring(const std::string& what, int error_number) {
  throw trace::Error{what + ": " + strerrordesc_np(error_number) +
                     ". Free some space there, use a smaller ring (--ring-mib), or set TMPDIR."};
}

class RingFile {
 public:
  // Throws trace::Error, with the remedy, if there is no room.
  RingFile(std::size_t chunks, RingClock clock)
      : bytes_{sizeof(Ring) + std::min(chunks, max_chunks) * chunk_bytes} {
    const std::string parent = parent_directory();
    remove_leftovers(parent);
    create_in(parent);
    if (const int error_number = posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes_))) {
      unlink(path_.c_str());
      rmdir(directory_.c_str());
      fail_ring("cannot create a ring of " + std::to_string(bytes_ >> 20) + " MiB in " + parent,
                error_number);
    }
    void* const mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    if (mapped == MAP_FAILED) fail_ring("cannot map the ring " + path_, errno);
    ring_ = ::new (mapped) Ring;  // no value: the file is all zeros
    ring_->clock = clock;
    if (readlink("/proc/self/ns/pid", ring_->pid_namespace, sizeof ring_->pid_namespace - 1) < 0) {
      ring_->pid_namespace[0] = '\0';
    }
    ring_->chunk_count = static_cast<std::uint32_t>(std::min(chunks, max_chunks));
    std::memcpy(ring_->magic, ring_magic, sizeof ring_magic);
  }

  ~RingFile() {
    if (ring_ != nullptr) munmap(static_cast<void*>(ring_), bytes_);
    unlink(path_.c_str());
    rmdir(directory_.c_str());
    if (descriptor_ >= 0) close(descriptor_);
  }

  RingFile(const RingFile&) = delete;
  RingFile& operator=(const RingFile&) = delete;

  const std::string& path() const { return path_; }
  Ring& ring() { return *ring_; }

 private:
  void create_in(const std::string& parent) {
    std::string pattern = parent + "/" + directory_prefix + "XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr)
      fail_ring("cannot create a directory in " + parent, errno);
    directory_ = pattern;
    path_ = directory_ + "/" + file_name;
    descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor_ < 0 || flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      const int error_number = errno;
      rmdir(directory_.c_str());
      fail_ring("cannot create the ring " + path_, error_number);
    }
  }

  std::string directory_;
  std::string path_;
  int descriptor_ = -1;
  Ring* ring_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ts::record
