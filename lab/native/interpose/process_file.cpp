// The mark that forks clear, and the creation of a file; see process_file.h.
#include "interpose/process_file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "interpose/next.h"

namespace ts {
namespace {

constexpr int max_files_per_pid = 10'000;  // each exec in the same process uses the next number

// A page that the kernel clears in every forked child, however it was forked: zero means "this
// process has not begun yet".
constinit std::atomic<std::atomic<unsigned char>*> fork_mark{nullptr};

// Read once, since the program may change its environment and its directory, and a child could not
// safely call the loader.
constinit char directory[PATH_MAX]{};
constinit const char* provider = "";

bool make_fork_mark() {
  constexpr std::size_t size = 1;  // rounded up to a page
  void* const page =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  // Before Linux 4.14 this fails, and then a child continues in its parent's record.
  madvise(page, size, MADV_WIPEONFORK);
  fork_mark.store(static_cast<std::atomic<unsigned char>*>(page), std::memory_order_release);
  return true;
}

void read_surroundings(const char* variable) {
  const char* const wanted = secure_getenv(variable);
  if (wanted != nullptr && *wanted != '\0') {
    const bool is_absolute = *wanted == '/';
    if (is_absolute || getcwd(directory, sizeof directory) != nullptr) {
      const std::size_t length = std::strlen(directory);
      const int needed = std::snprintf(directory + length, sizeof directory - length, "%s%s",
                                       is_absolute ? "" : "/", wanted);
      if (needed < 0 || static_cast<std::size_t>(needed) >= sizeof directory - length) {
        directory[0] = '\0';
      }
    }
  }
  Dl_info info{};
  if (dladdr(address_of_next_malloc(), &info) != 0 && info.dli_fname != nullptr) {
    provider = info.dli_fname;
  }
}

int create_file(const char* suffix, char (&path)[PATH_MAX + 48]) {
  for (int number = 0; number < max_files_per_pid; ++number) {
    static_cast<void>(
        std::snprintf(path, sizeof path, "%s/%d-%d.%s", directory, getpid(), number, suffix));
    const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

// Writing past the limit on file sizes would not fail but kill the program with SIGXFSZ.
bool may_write(std::size_t size) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= size;
}

}  // namespace

bool has_begun() {
  const std::atomic<unsigned char>* const mark = fork_mark.load(std::memory_order_acquire);
  return mark != nullptr && mark->load(std::memory_order_relaxed) != 0;
}

// Other threads may call at the same time only if they are started before the first call, but
// pthread_create itself allocates.
Begin begin_process(const char* variable) {
  const bool is_first = fork_mark.load(std::memory_order_acquire) == nullptr;
  if (is_first && environ == nullptr) return Begin::try_later;
  if (is_first && !make_fork_mark()) return Begin::try_later;
  unsigned char unset = 0;
  if (!fork_mark.load(std::memory_order_relaxed)->compare_exchange_strong(unset, 1)) {
    return Begin::try_later;
  }
  if (!is_first) return Begin::forked;
  read_surroundings(variable);
  return Begin::first;
}

void* map_new_file(const char* suffix, const void* content, std::size_t size) {
  char path[PATH_MAX + 48];
  const int file = directory[0] != '\0' && may_write(size) ? create_file(suffix, path) : -1;
  if (file < 0) return nullptr;
  void* mapped = MAP_FAILED;
  if (pwrite(file, content, size, 0) == static_cast<ssize_t>(size)) {
    mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  if (mapped == MAP_FAILED) {
    unlink(path);
    return nullptr;
  }
  return mapped;
}

void name_program(char* text, std::size_t size) {
  const ssize_t length = readlink("/proc/self/exe", text, size - 1);
  text[length < 0 ? 0 : length] = '\0';
}

void name_provider(char* text, std::size_t size) {
  static_cast<void>(std::snprintf(text, size, "%s", provider));
}

}  // namespace ts
