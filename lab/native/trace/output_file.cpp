#include "trace/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/system.h"

namespace ts::trace {
namespace {

[[noreturn]] void fail_to_create(const std::string& path, int error_number) {
  const std::string what = "cannot create the trace '" + path + "': ";
  if (error_number == EEXIST) {
    throw Error{what + "it already exists. Overwrite it with -f, or name another file."};
  }
  throw Error{what + strerrordesc_np(error_number) + ". Name a writable file."};
}

}  // namespace

OutputFile::OutputFile(const std::string& path, bool force) : path_{path} {
  // Must not block if the name is a FIFO's, which cannot seek anyway.
  const int flags =
      O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (force ? O_TRUNC : O_EXCL);
  descriptor_ = open(path.c_str(), flags, 0666);
  if (descriptor_ < 0) fail_to_create(path, errno);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFile::fail(int error_number) {
  failed_with_ = error_number;
  // A reader could not use part of a chunk.
  if (descriptor_ >= 0) static_cast<void>(ftruncate(descriptor_, static_cast<off_t>(size_)) == 0);
  throw Error{"cannot write the trace '" + path_ + "': " + strerrordesc_np(error_number) +
              (size_ == 0 ? "" : ". What was written before is readable") +
              ". Free some space, or record to a file elsewhere."};
}

void OutputFile::append(const void* bytes, std::size_t count) {
  if (failed_with_ != 0) fail(failed_with_);
  if (const int error_number = write_all(descriptor_, bytes, count)) {
    fail(error_number);
  }
  size_ += count;
}

void OutputFile::start_writeback() {
  if (failed_with_ != 0) fail(failed_with_);
  // Starts writing back, if possible: not every file system supports it, and the file does not need
  // it to outlive the process.
  (void)sync_file_range(descriptor_, 0, 0, SYNC_FILE_RANGE_WRITE);
}

void OutputFile::close() {
  if (failed_with_ != 0) fail(failed_with_);
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) != 0) fail(errno);
}

}  // namespace ts::trace
