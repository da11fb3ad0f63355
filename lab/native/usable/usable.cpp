// usable: how large a block the allocator that is preloaded makes for each size.
//
// What an allocator rounds requests to decides its internal waste, and the sizes of a trace can be
// held against that without running anything. Nothing else is allocated, so that each block that is
// looked at is the only one. Headers and half-empty slabs are not seen here.
#include <dlfcn.h>
#include <malloc.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "common/system.h"

namespace ts {

const char* tool_name() { return "usable"; }

namespace {

constexpr int exit_unknown = 2;
constexpr int glibc_threshold = 128 * 1024;  // its default

constexpr const char* help =
    R"(usage: usable < SIZES > BLOCKS

Reads sizes, and writes for each the usable bytes of a block of the allocator that serves this process
(choose it with LD_PRELOAD); all are 64-bit numbers. What cannot be had is told as it was asked for.

Exit status: 0; 1 wrong usage; 2 the allocator does not tell; 125 the answers could not be written.
)";

std::uint64_t usable_bytes(std::uint64_t size) {
  // NOLINTNEXTLINE(clang-analyzer-optin.portability.UnixAPI): 0 bytes are one of the questions
  void* const block = std::malloc(size);
  const std::uint64_t usable = block != nullptr ? malloc_usable_size(block) : size;
  std::free(block);
  return usable;
}

// The library of the definition that calls from here reach. (The address of malloc taken in a
// program that is not position-independent would be the program's own stub.)
const void* provider_of(const char* name) {
  void* const function = dlsym(RTLD_DEFAULT, name);
  Dl_info info{};
  return function != nullptr && dladdr(function, &info) != 0 ? info.dli_fbase : nullptr;
}

int say(int descriptor, const char* text, int status) {
  return write_all(descriptor, text, std::strlen(text)) == 0 ? status : exit_internal;
}

// As many numbers as there are at once; 0: there are no more, or half of one.
std::size_t read_numbers(std::uint64_t* numbers, std::size_t most) {
  auto* const bytes = reinterpret_cast<unsigned char*>(numbers);
  std::size_t have = 0;
  while (have == 0 || have % sizeof *numbers != 0) {
    const ssize_t more = read(STDIN_FILENO, bytes + have, most * sizeof *numbers - have);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) break;
    have += static_cast<std::size_t>(more);
  }
  return have / sizeof *numbers;
}

int answer() {
  constexpr std::size_t most = 4096;
  static std::uint64_t numbers[most];
  while (const std::size_t count = read_numbers(numbers, most)) {
    for (std::size_t i = 0; i < count; ++i) numbers[i] = usable_bytes(numbers[i]);
    if (const int error = write_all(STDOUT_FILENO, numbers, count * sizeof *numbers)) {
      fail_internal("cannot write", error);
    }
  }
  return 0;
}

int run(int argument_count, char** arguments) {
  if (argument_count == 2 && std::strcmp(arguments[1], "--help") == 0) {
    return say(STDOUT_FILENO, help, 0);
  }
  if (argument_count > 1) {
    return say(STDERR_FILENO, "usable: it takes no argument; see usable --help\n", exit_usage);
  }
  const void* const allocator = provider_of("malloc");
  if (allocator == nullptr || allocator != provider_of("malloc_usable_size")) {
    // The C library's malloc_usable_size knows nothing of these blocks.
    return say(STDERR_FILENO, "usable: the allocator has no malloc_usable_size\n", exit_unknown);
  }
  // glibc's threshold for mapped blocks otherwise rises with each such block that is freed, so that
  // an answer would depend on the questions before.
  if (allocator == provider_of("gnu_get_libc_version")) mallopt(M_MMAP_THRESHOLD, glibc_threshold);
  return answer();
}

}  // namespace
}  // namespace ts

int main(int argument_count, char** arguments) { return ts::run(argument_count, arguments); }
