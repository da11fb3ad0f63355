#include "trace/format/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trace/format/error.h"

namespace ts::trace {
namespace {

[[noreturn]] void fail_to_open(const std::string& path, const char* why, const char* remedy) {
  throw Error{"cannot read the trace '" + path + "': " + why + ". " + remedy};
}

}  // namespace

InputFile::InputFile(const std::string& path) {
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor_ < 0) {
    const int error_number = errno;
    const bool is_forbidden = error_number == EACCES || error_number == EPERM;
    fail_to_open(path, strerrordesc_np(error_number),
                 is_forbidden ? "Ask its owner for the right to read it."
                              : "Name a file that `tsmalloc record` wrote.");
  }
  struct stat status {};
  const char* why = nullptr;
  if (fstat(descriptor_, &status) != 0) {
    why = strerrordesc_np(errno);
  } else if (S_ISDIR(status.st_mode)) {
    why = "it is a directory";
  } else if (!S_ISREG(status.st_mode)) {
    why = "it is no regular file, in which one could seek";
  }
  if (why != nullptr) {
    close(descriptor_);
    fail_to_open(path, why, "Name a file that `tsmalloc record` wrote.");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() { close(descriptor_); }

const char* InputFile::read(std::uint64_t offset, std::size_t count, Bytes& to) const {
  to.resize(count);
  for (std::size_t done = 0; done < count;) {
    const ssize_t got =
        pread(descriptor_, to.data() + done, count - done, static_cast<off_t>(offset + done));
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else if (got == 0 || errno != EINTR) {
      to.resize(done);
      return got == 0 ? "the file ends before it" : strerrordesc_np(errno);
    }
  }
  return nullptr;
}

}  // namespace ts::trace
