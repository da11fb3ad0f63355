// Mapping a plan, and whether its tables lie within it; see plan_view.h.
#include "replay/plan_view.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <initializer_list>

namespace ts::plan {
namespace {

constexpr char remedy[] = "make it again with `trace plan`";

}  // namespace

// NOLINTNEXTLINE(cert-dcl50-cpp): the attribute makes the compiler check every call
bool refuse(Problem& problem, const char* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is initialised, in the line above
  if (std::vsnprintf(problem.text, sizeof problem.text, pattern, arguments) < 0) {
    problem.text[0] = '\0';
  }
  va_end(arguments);
  return false;
}

View::~View() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

bool View::open(const char* path, Problem& problem) {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  // Not fstat, which glibc has as a function since 2.33 alone.
  struct statx status = {};
  if (file < 0 || statx(file, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE, &status) != 0) {
    return refuse(problem, "cannot read the plan %.200s: %s.", path, std::strerror(errno));
  }
  bytes_ = status.stx_size;
  const bool is_file = S_ISREG(status.stx_mode);
  const bool is_long_enough = is_file && bytes_ >= sizeof(Header);
  void* const mapped =
      is_long_enough ? mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  const int error_number = errno;
  close(file);
  if (!is_long_enough) {
    return refuse(problem, "%.200s is no plan: %s; %s.", path,
                  is_file ? "it is too short" : "it is no file", remedy);
  }
  if (mapped == MAP_FAILED) {
    return refuse(problem, "cannot map the plan %.200s: %s.", path, std::strerror(error_number));
  }
  base_ = static_cast<unsigned char*>(mapped);
  // Later reads, in the middle of the measurement, have no page faults then. Best effort.
  (void)madvise(mapped, bytes_, MADV_POPULATE_READ);
  if (!check_header(path, problem)) return false;
  for (std::size_t i = 0; i < images(); ++i) {
    if (!check_image(path, i, problem)) return false;
  }
  return true;
}

bool View::holds(std::uint64_t offset, std::uint64_t count, std::size_t size) const {
  return offset % alignof(std::uint64_t) == 0 && offset >= sizeof(Header) && offset <= bytes_ &&
         count <= (bytes_ - offset) / size;
}

bool View::check_header(const char* path, Problem& problem) const {
  const Header& found = header();
  if (std::memcmp(found.magic, magic, sizeof magic) != 0) {
    return refuse(problem, "%.200s is no plan, or was not finished; %s.", path, remedy);
  }
  if (found.version != version || found.image_bytes != sizeof(Image)) {
    return refuse(problem, "%.200s is a plan of version %u, and this program knows version %u; %s.",
                  path, found.version, version, remedy);
  }
  if (found.file_bytes != bytes_) {
    return refuse(problem, "%.200s has %llu bytes of the %llu that it was written with; %s.", path,
                  static_cast<unsigned long long>(bytes_),
                  static_cast<unsigned long long>(found.file_bytes), remedy);
  }
  if (found.images == 0 || !holds(found.images_offset, found.images, sizeof(Image))) {
    return refuse(problem, "%.200s is damaged: its table of images is not in it; %s.", path,
                  remedy);
  }
  return true;
}

bool View::check_image(const char* path, std::size_t place, Problem& problem) const {
  const Image& found = image(place);
  const auto wrong = [&](const char* what) {
    return refuse(problem, "%.200s is damaged: image %u has %s; %s.", path, found.number, what,
                  remedy);
  };
  if (place == 0 ? found.parent != none : found.parent >= place) return wrong("no such parent");
  if (found.threads == 0 || !holds(found.threads_offset, found.threads, sizeof(Thread))) {
    return wrong("more threads than the file");
  }
  if (!holds(found.operations_offset, found.operations, sizeof(Operation))) {
    return wrong("more operations than the file");
  }
  if (!holds(found.epochs_offset, found.epochs, sizeof(Epoch))) {
    return wrong("more epochs than the file");
  }
  if (!holds(found.runs_offset, found.runs, sizeof(Run))) return wrong("more runs than the file");
  if (found.times_offset != 0 &&
      !holds(found.times_offset, found.operations, sizeof(std::uint64_t))) {
    return wrong("more times than the file");
  }
  for (std::size_t t = 0; t < found.threads; ++t) {
    const Thread& thread = threads(found)[t];
    if (thread.first_operation > found.operations ||
        thread.operations > found.operations - thread.first_operation) {
      return wrong("threads with operations that are not its own");
    }
  }
  if (found.slots >= none || found.ends > found.threads) {
    return wrong("impossible counts");
  }
  return true;
}

}  // namespace ts::plan
