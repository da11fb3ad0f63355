// Writing at places; see plan_file.h.
#include "trace/plan/plan_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "trace/format/error.h"

namespace ts::trace {

PlanFile::PlanFile(std::string path, bool force)
    : path_{std::move(path)},
      descriptor_{
          ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | (force ? O_TRUNC : O_EXCL), 0666)} {
  if (descriptor_ >= 0) return;
  if (errno == EEXIST) throw Error{path_ + " exists; choose another name, or add --force."};
  throw Error{"cannot write " + path_ + ": " + strerrordesc_np(errno) + "."};
}

PlanFile::~PlanFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(path_.c_str());
}

void PlanFile::fail(const char* what) const {
  throw Error{std::string{"cannot "} + what + " " + path_ + ": " + strerrordesc_np(errno) +
              "; make room, or choose another place."};
}

std::uint64_t PlanFile::reserve(std::uint64_t bytes) {
  constexpr std::uint64_t unit = plan::section_alignment;
  const std::uint64_t offset = end_;
  end_ += (bytes + unit - 1) / unit * unit;
  return offset;
}

void PlanFile::write(std::uint64_t offset, const void* bytes, std::size_t count) {
  const auto* from = static_cast<const unsigned char*>(bytes);
  while (count > 0) {
    const ssize_t written = pwrite(descriptor_, from, count, static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("write");
    }
    from += written;
    offset += static_cast<std::uint64_t>(written);
    count -= static_cast<std::size_t>(written);
  }
}

void PlanFile::finish(const std::vector<plan::Image>& images, std::uint64_t window) {
  plan::Header header = {};
  std::memcpy(header.magic, plan::magic, sizeof header.magic);
  header.version = plan::version;
  header.images = static_cast<std::uint32_t>(images.size());
  header.images_offset = reserve(images.size() * sizeof(plan::Image));
  header.window = window;
  header.image_bytes = sizeof(plan::Image);
  header.file_bytes = end_;
  write(header.images_offset, images.data(), images.size() * sizeof(plan::Image));
  if (ftruncate(descriptor_, static_cast<off_t>(end_)) != 0) fail("write");
  write(0, &header, sizeof header);
  const int descriptor = std::exchange(descriptor_, -1);
  if (close(descriptor) != 0) {
    const int error = errno;
    unlink(path_.c_str());
    errno = error;
    fail("write");
  }
}

void column_is_too_long() {
  throw Error{
      "the trace has changed while it was planned, or this is a defect of `trace plan`; try "
      "again, and report it if it happens twice."};
}

}  // namespace ts::trace
