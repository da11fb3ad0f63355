// Making and replacing the record; see record.h.
#include "record.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "interpose/next.h"

namespace ts {
namespace {

constexpr int max_records_per_pid = 10'000;  // each exec in the same process takes the next number

// Until there is a file, and for good where there is none.
constinit CountRecord record_in_memory{};
constinit std::atomic<CountRecord*> record{&record_in_memory};

// A page that the kernel clears in every forked child, however it was forked: zero means "this
// process has no record yet".
constinit std::atomic<std::atomic<unsigned char>*> fork_mark{nullptr};

// Read once, since the program may change its environment and its directory, and a child could not
// ask the loader safely.
constinit char directory[PATH_MAX]{};
constinit const char* provider = "";

constinit thread_local std::uint64_t thread_tally[counter_count]{};

void count(Counter counter, std::uint64_t amount) {
  const auto index = static_cast<std::size_t>(counter);
  thread_tally[index] += amount;
  CountRecord* const current = record.load(std::memory_order_relaxed);
  current->counters[index].fetch_add(amount, std::memory_order_relaxed);
}

bool make_fork_mark() {
  constexpr std::size_t size = 1;  // rounded up to a page
  void* const page =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  // Before Linux 4.14 this fails, and then a child goes on counting for its parent.
  madvise(page, size, MADV_WIPEONFORK);
  fork_mark.store(static_cast<std::atomic<unsigned char>*>(page), std::memory_order_release);
  return true;
}

void read_surroundings() {
  const char* const wanted = secure_getenv("TSMALLOC_COUNT_DIR");
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

int create_file(char (&path)[PATH_MAX + 32]) {
  for (int number = 0; number < max_records_per_pid; ++number) {
    static_cast<void>(
        std::snprintf(path, sizeof path, "%s/%d-%d.count", directory, getpid(), number));
    const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

void fill(CountRecord& fresh, const CountRecord* earlier) {
  std::memcpy(fresh.magic, "TSCOUNT1", sizeof fresh.magic);
  fresh.pid = getpid();
  fresh.parent_pid = getppid();
  if (earlier != nullptr) {
    for (std::size_t i = 0; i < counter_count; ++i) fresh.counters[i] = earlier->counters[i].load();
  }
  if (readlink("/proc/self/exe", fresh.executable, sizeof fresh.executable - 1) < 0) {
    fresh.executable[0] = '\0';
  }
  static_cast<void>(std::snprintf(fresh.provider, sizeof fresh.provider, "%s", provider));
}

// Writing past the limit on file sizes would not fail but kill the program with SIGXFSZ.
bool may_write_record() {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= sizeof(CountRecord);
}

// Null when there is no file to be had. The whole page is written before it is mapped: a full disk
// shows here, not as a SIGBUS.
CountRecord* map_new_record(const CountRecord* earlier) {
  char path[PATH_MAX + 32];
  const int file = directory[0] != '\0' && may_write_record() ? create_file(path) : -1;
  if (file < 0) return nullptr;
  CountRecord fresh{};
  fill(fresh, earlier);
  void* page = MAP_FAILED;
  if (pwrite(file, &fresh, sizeof fresh, 0) == static_cast<ssize_t>(sizeof fresh)) {
    page = mmap(nullptr, sizeof fresh, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  if (page == MAP_FAILED) {
    unlink(path);
    return nullptr;
  }
  return static_cast<CountRecord*>(page);
}

// At the program's first call, or a forked child's. Others may be counting meanwhile only if
// somebody starts threads before that, and pthread_create itself allocates.
void start_record_slow() {
  const bool is_first = fork_mark.load(std::memory_order_acquire) == nullptr;
  if (is_first && environ == nullptr) return;  // libc is not ready; a later call comes here again
  const int saved_errno = errno;
  if (!is_first || make_fork_mark()) {
    unsigned char unset = 0;
    if (fork_mark.load(std::memory_order_relaxed)->compare_exchange_strong(unset, 1)) {
      if (is_first) read_surroundings();
      CountRecord* const fresh = map_new_record(is_first ? &record_in_memory : nullptr);
      CountRecord* const old =
          record.exchange(fresh != nullptr ? fresh : &record_in_memory, std::memory_order_acq_rel);
      if (old != &record_in_memory) munmap(old, sizeof *old);  // the parent's, still shared with it
    }
  }
  errno = saved_errno;
}

bool has_record() {
  const std::atomic<unsigned char>* const mark = fork_mark.load(std::memory_order_acquire);
  return mark != nullptr && mark->load(std::memory_order_relaxed) != 0;
}

// For a program that never allocates.
[[gnu::constructor]] void start_record_at_load() {
  if (!has_record()) start_record_slow();
}

}  // namespace

CountedCall::CountedCall(Counter kind) {
  if (!has_record()) start_record_slow();
  count(kind, 1);
  std::memcpy(mine_, thread_tally, sizeof mine_);
}

void CountedCall::finish(std::size_t granted_bytes) {
  CountRecord* const current = record.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < counter_count; ++i) {
    const std::uint64_t nested = thread_tally[i] - mine_[i];
    if (nested == 0) continue;
    current->counters[i].fetch_sub(nested, std::memory_order_relaxed);
    thread_tally[i] = mine_[i];
  }
  if (granted_bytes != 0) count(Counter::bytes_requested, granted_bytes);
}

}  // namespace ts
