#include "record/collector/ring_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>

#include "trace/output_file.h"

namespace ts::record {
namespace {

namespace fs = std::filesystem;

constexpr char directory_prefix[] = "tsmalloc-record-";
constexpr char file_name[] = "ring";

// Where files are in memory, if there is such a place.
std::string parent_directory() {
  if (access("/dev/shm", W_OK | X_OK) == 0) return "/dev/shm";
  const char* const given = std::getenv("TMPDIR");
  return given != nullptr && *given != '\0' ? given : "/tmp";
}

// Of killed recorders: nobody holds their lock.
void remove_leftovers(const std::string& parent) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator{parent, ignored}) {
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

[[noreturn]] void fail(const std::string& what, int error_number) {
  throw trace::Error{what + ": " + strerrordesc_np(error_number) +
                     ". Free some space there, use a smaller ring (--ring-mib), or set TMPDIR."};
}

}  // namespace

RingFile::RingFile(std::size_t chunks, RingClock clock)
    : bytes_{Ring::bytes_with(std::min(chunks, max_chunks))} {
  const std::string parent = parent_directory();
  remove_leftovers(parent);
  create_in(parent);
  if (const int error_number = posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes_))) {
    unlink(path_.c_str());
    rmdir(directory_.c_str());
    fail("cannot create a ring of " + std::to_string(bytes_ >> 20) + " MiB in " + parent,
         error_number);
  }
  void* const mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (mapped == MAP_FAILED) fail("cannot map the ring " + path_, errno);
  ring_ = ::new (mapped) Ring;  // no value: the file is all zeros
  ring_->clock = clock;
  if (readlink("/proc/self/ns/pid", ring_->pid_namespace, sizeof ring_->pid_namespace - 1) < 0) {
    ring_->pid_namespace[0] = '\0';
  }
  ring_->chunk_count = static_cast<std::uint32_t>(std::min(chunks, max_chunks));
  std::memcpy(ring_->magic, ring_magic, sizeof ring_magic);
}

RingFile::~RingFile() {
  if (ring_ != nullptr) munmap(static_cast<void*>(ring_), bytes_);
  unlink(path_.c_str());
  rmdir(directory_.c_str());
  if (descriptor_ >= 0) close(descriptor_);
}

void RingFile::create_in(const std::string& parent) {
  std::string pattern = parent + "/" + directory_prefix + "XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) fail("cannot create a directory in " + parent, errno);
  directory_ = pattern;
  path_ = directory_ + "/" + file_name;
  descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor_ < 0 || flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int error_number = errno;
    rmdir(directory_.c_str());
    fail("cannot create the ring " + path_, error_number);
  }
}

}  // namespace ts::record
