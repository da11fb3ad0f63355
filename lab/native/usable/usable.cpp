// usable: the size classes of the allocator that is preloaded, as one line of JSON.
//
// What an allocator rounds a request to decides its internal waste, and the sizes of a trace can be
// held against that without running anything. malloc_usable_size tells, if it is asked for the right
// sizes. Nothing else is allocated, so that each block that is looked at is the only one. Headers and
// half-empty slabs are not seen here.
//
// The steps of an allocator are runs of equal distance: glibc's are every 16 bytes, others have 4
// or 8 to an octave. A run [first, step, count, slack] stands for count steps for requests of up to
// first, first + step, first + 2 step... bytes; each has slack bytes more than that.
// docs/formats/trace.md says more.
#include <dlfcn.h>
#include <malloc.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "common/json_line.h"
#include "common/system.h"
#include "usable/steps.h"

namespace ts {

const char* tool_name() { return "usable"; }

namespace {

constexpr std::uint64_t default_most = std::uint64_t{64} << 20;
constexpr int glibc_threshold = 128 * 1024;  // its default
constexpr std::uint64_t largest_most = std::uint64_t{1} << 40;

constexpr const char* help =
    R"(usage: usable [--most BYTES]

Prints the size classes of the allocator that serves this process (choose it with LD_PRELOAD), as
one line of JSON.

  --most BYTES  the largest request to look at (default 67108864)

Exit status: 0 a line was written; 1 wrong usage; 125 no memory, or the line could not be written.
)";

// What a request of so many bytes gets.
std::uint64_t usable_bytes(std::uint64_t size) {
  // NOLINTNEXTLINE(clang-analyzer-optin.portability.UnixAPI): 0 bytes are one of the questions
  void* const block = std::malloc(size);
  if (block == nullptr) {
    fail_internal("a block cannot be had; ask for less with --most", ENOMEM);
  }
  const std::uint64_t usable = malloc_usable_size(block);
  std::free(block);
  return usable;
}

// The library of the definition that calls from here reach; empty if that is not known. (The
// address of malloc taken in a program that is not position-independent would be the program's own
// stub.)
const char* provider_of(const char* name) {
  void* const function = dlsym(RTLD_DEFAULT, name);
  Dl_info info{};
  const bool is_known =
      function != nullptr && dladdr(function, &info) != 0 && info.dli_fname != nullptr;
  return is_known ? base_name(info.dli_fname) : "";
}

std::uint64_t parse_most(int count, char** arguments) {
  if (count == 1) return default_most;
  if (count == 2 && std::strcmp(arguments[1], "--help") == 0) {
    const ssize_t written = write(STDOUT_FILENO, help, std::strlen(help));
    _exit(written < 0 ? exit_internal : 0);
  }
  std::uint64_t most = 0;
  const char* text = count == 3 && std::strcmp(arguments[1], "--most") == 0 ? arguments[2] : "";
  for (; *text >= '0' && *text <= '9' && most <= largest_most; ++text) {
    most = 10 * most + static_cast<std::uint64_t>(*text - '0');
  }
  if (*text != '\0' || most == 0 || most > largest_most) {
    constexpr char complaint[] = "usable: use it as `usable [--most BYTES]`; see usable --help\n";
    const ssize_t written = write(STDERR_FILENO, complaint, sizeof complaint - 1);
    _exit(written < 0 ? exit_internal : exit_usage);
  }
  return most;
}

int print_classes(int count, char** arguments) {
  const std::uint64_t most = parse_most(count, arguments);
  const char* const allocator = provider_of("malloc");
  const bool is_known = std::strcmp(allocator, provider_of("malloc_usable_size")) == 0;
  // glibc's threshold for mapped blocks otherwise rises with each such block that is freed, so that
  // an answer would depend on the questions before.
  if (std::strcmp(allocator, "libc.so.6") == 0) mallopt(M_MMAP_THRESHOLD, glibc_threshold);
  JsonLine line{STDOUT_FILENO};
  line.begin_object();
  line.add_text("schema", "tsmalloc-usable/1");
  line.add_text("allocator", allocator);
  line.add("most", most);
  if (is_known) {
    line.begin_list("runs");
    each_run(most, usable_bytes,
             [&](const Run& run) { line.add_row(run.first, run.step, run.count, run.slack); });
    line.end_list();
  } else {
    line.add_null("runs");  // the C library's malloc_usable_size knows nothing of these blocks
  }
  line.end_object();
  if (const int error = line.finish(); error != 0) fail_internal("cannot write", error);
  return 0;
}

}  // namespace
}  // namespace ts

int main(int argument_count, char** arguments) {
  return ts::print_classes(argument_count, arguments);
}
