// The record, and what each call adds to it; see call.h.
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "call.h"
#include "common/system.h"

namespace ts {
namespace {

// The file that libtsmalloc-tracker.so keeps for each program image in each process, mapped and
// shared, so that a crash or _exit loses nothing. The reader is lab/tsmlab/tracker.py.
//
//   offset  0         8     12     16        72               152          2128       3104         4096
//           | magic   | pid | ppid | 7 calls | 10 other sums  | executable | provider | deep_bound |
//           4096                          20480
//           | 256 threads, 8 sums each    |

using AnyCounter = std::atomic<std::uint64_t>;  // relaxed; the reader comes after the process's end

// For one thread: the first that allocated or freed has the first place. All further threads share
// the last place.
struct ThreadSums {
  AnyCounter allocations;
  AnyCounter frees;
  AnyCounter resizes;  // in place; a block that moves counts as freed and allocated
  AnyCounter requested_bytes;
  AnyCounter freed_bytes;
  AnyCounter foreign_frees;  // of blocks that another thread had allocated
  AnyCounter reused_bytes;   // of its allocations, what had been allocated before
  AnyCounter usable_bytes;   // of its allocations, from malloc_usable_size
};

constexpr std::size_t thread_places = 256;

struct Record {
  char magic[8];
  std::int32_t pid;
  std::int32_t parent_pid;
  AnyCounter calls[entries];  // that the program made itself; see Call
  AnyCounter granted_bytes;   // by these calls
  AnyCounter deep_bindings;   // libraries loaded with RTLD_DEEPBIND
  AnyCounter knows_usable;    // 1: malloc_usable_size comes from the library that provides malloc
  AnyCounter live_bytes;
  AnyCounter live_blocks;
  AnyCounter peak_live_bytes;
  AnyCounter peak_live_blocks;
  AnyCounter inherited_bytes;   // already live when the record began, in a forked child
  AnyCounter untracked_blocks;  // allocations for which the tracker had no memory
  AnyCounter missed_frees;      // known blocks that were allocated again without a free
  char executable[1976];
  char provider[976];    // the library that provides the next malloc
  char deep_bound[992];  // the first of the deep_bindings, as passed to dlopen
  ThreadSums threads[thread_places];
};
static_assert(offsetof(Record, executable) == 152 && offsetof(Record, threads) == 4096 &&
              sizeof(Record) == 20'480);
static_assert(AnyCounter::is_always_lock_free);

// --- the file ------------------------------------------------------------------------------------
//
// There is one for each program image in each process. It is mapped, so that it survives every way
// for a process to end. A forked child starts a file of its own, although nobody tells it that it
// was forked. Nothing here makes a program fail, or allocates: in a directory without write
// permission, no file is made.

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

int create_file(char (&path)[PATH_MAX + 48]) {
  for (int number = 0; number < max_files_per_pid; ++number) {
    static_cast<void>(
        std::snprintf(path, sizeof path, "%s/%d-%d.tracker", directory, getpid(), number));
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

enum class Begin {
  try_later,  // another thread does it, or libc is not ready and a later call will retry
  first,      // the caller must create the record of this program image
  forked      // the same, in a forked child, whose memory is a copy of its parent's
};

// Whether this process has begun: false at its first call, and at the first one of a forked child.
bool has_begun() {
  const std::atomic<unsigned char>* const mark = fork_mark.load(std::memory_order_acquire);
  return mark != nullptr && mark->load(std::memory_order_relaxed) != 0;
}

// variable: the environment variable with the directory.
//
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

// Creates DIRECTORY/PID-NUMBER.tracker with this content, and maps it shared; null if that fails.
// Everything is written before it is mapped, so that a full disk shows here, not as a SIGBUS.
void* map_new_file(const void* content, std::size_t size) {
  char path[PATH_MAX + 48];
  const int file = directory[0] != '\0' && may_write(size) ? create_file(path) : -1;
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

// --- the record ----------------------------------------------------------------------------------

// Used until there is a file, and for good if there is none.
constinit Record record_in_memory{};
// release at an exchange, acquire at each use: the record's texts and first sums are seen.
constinit std::atomic<Record*> record{&record_in_memory};

Record& current() { return *record.load(std::memory_order_acquire); }

// Relaxed everywhere: each number is independent, and publishes nothing else.
void add(AnyCounter& counter, std::uint64_t amount) {
  if (amount != 0) counter.fetch_add(amount, std::memory_order_relaxed);
}

void raise(AnyCounter& peak, std::uint64_t value) {
  std::uint64_t highest = peak.load(std::memory_order_relaxed);
  while (value > highest) {
    if (peak.compare_exchange_weak(highest, value, std::memory_order_relaxed)) return;
  }
}

// --- live bytes and blocks: now, and at their peak -----------------------------------------------

// For this process's memory, and in a fork's copy of it: live blocks are inherited. The record has
// them again, since a forked child must not read its parent's.
constinit std::atomic<std::uint64_t> live_bytes{0};
constinit std::atomic<std::uint64_t> live_blocks{0};

// No other thread may be in here, except for a first record, when others may already be counting.
void begin_live(Record& totals) {
  const std::uint64_t bytes = live_bytes.load(std::memory_order_relaxed);
  const std::uint64_t blocks = live_blocks.load(std::memory_order_relaxed);
  for (AnyCounter* each : {&totals.inherited_bytes, &totals.live_bytes, &totals.peak_live_bytes}) {
    each->store(bytes, std::memory_order_relaxed);
  }
  for (AnyCounter* each : {&totals.live_blocks, &totals.peak_live_blocks}) {
    each->store(blocks, std::memory_order_relaxed);
  }
}

// Negative numbers, in two's complement, for what is freed.
void change_live(Record& totals, std::uint64_t bytes, std::uint64_t blocks) {
  const std::uint64_t now_bytes = live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  const std::uint64_t now_blocks =
      live_blocks.fetch_add(blocks, std::memory_order_relaxed) + blocks;
  add(totals.live_bytes, bytes);
  add(totals.live_blocks, blocks);
  if (static_cast<std::int64_t>(bytes) > 0) raise(totals.peak_live_bytes, now_bytes);
  if (static_cast<std::int64_t>(blocks) > 0) raise(totals.peak_live_blocks, now_blocks);
}

// --- the record's beginning ----------------------------------------------------------------------

constinit Next<std::size_t(void*)> next_usable{"malloc_usable_size"};
constinit bool knows_usable = false;
constinit bool tracks_blocks = true;

const void* library_of(const void* function) {
  Dl_info info{};
  return function != nullptr && dladdr(function, &info) != 0 ? info.dli_fbase : nullptr;
}

// At the program's first call, or a forked child's. Counts from before the first record are in
// record_in_memory, which is copied into the file.
void begin_slow() {
  const int saved_errno = errno;
  const char* const calls_alone = "TSMALLOC_TRACKER_CALLS";
  const bool wants_blocks = secure_getenv(calls_alone) == nullptr;
  if (const Begin begin = begin_process(wants_blocks ? "TSMALLOC_TRACKER" : calls_alone);
      begin != Begin::try_later) {
    Record& fresh = record_in_memory;
    if (begin == Begin::forked) {
      std::memset(static_cast<void*>(&fresh), 0, sizeof fresh);
    } else {
      tracks_blocks = wants_blocks;
    }
    begin_live(fresh);
    std::memcpy(fresh.magic, "TSTRACK1", sizeof fresh.magic);
    fresh.pid = getpid();
    fresh.parent_pid = getppid();
    fresh.knows_usable.store(knows_usable ? 1 : 0, std::memory_order_relaxed);
    const ssize_t length =
        readlink("/proc/self/exe", fresh.executable, sizeof fresh.executable - 1);
    fresh.executable[length < 0 ? 0 : length] = '\0';
    static_cast<void>(std::snprintf(fresh.provider, sizeof fresh.provider, "%s", provider));
    auto* const file = static_cast<Record*>(map_new_file(&fresh, sizeof fresh));
    Record* const old = record.exchange(file != nullptr ? file : &fresh, std::memory_order_acq_rel);
    if (old != &fresh) munmap(old, sizeof *old);  // the parent's, still shared with it
  }
  errno = saved_errno;
}

void begin_if_new() {
  if (!has_begun()) begin_slow();
}

// For a program that never allocates. The allocator after us has been initialised by now: earlier,
// tcmalloc's malloc_usable_size would crash.
[[gnu::constructor]] void begin_at_load() {
  begin_if_new();
  const void* const library = library_of(reinterpret_cast<const void*>(next_usable.get()));
  knows_usable = library != nullptr && library == library_of(address_of_next_malloc());
  current().knows_usable.store(knows_usable ? 1 : 0, std::memory_order_relaxed);
}

// --- sums ----------------------------------------------------------------------------------------

constinit thread_local Tally tally{};

void count(Record& totals, Entry entry) {
  const auto place = static_cast<std::size_t>(entry);
  ++tally.calls[place];
  add(totals.calls[place], 1);
}

constinit std::atomic<std::uint32_t> last_thread{0};  // relaxed: numbers only have to differ
constinit thread_local std::uint32_t own_number = 0;  // kept across forks, since blocks record it

std::uint32_t own_thread() {
  if (own_number == 0) {
    own_number = std::min(last_thread.fetch_add(1, std::memory_order_relaxed) + 1, max_threads);
  }
  return own_number;
}

ThreadSums& mine(Record& totals) {
  return totals.threads[std::min<std::size_t>(own_thread(), thread_places) - 1];
}

void note_free(Record& totals, Block block) {
  ThreadSums& sums = mine(totals);
  add(sums.frees, 1);
  add(sums.freed_bytes, block.bytes);
  add(sums.foreign_frees, block.thread != own_thread() ? 1 : 0);
  change_live(totals, -block.bytes, -std::uint64_t{1});
}

std::uint64_t usable_size(void* block) { return knows_usable ? next_usable.get()(block) : 0; }

// The block that this thread entered last, since it was last asked for one: if entered again, it
// comes from a nested call.
constinit thread_local const void* newest = nullptr;

void enter(void* block, std::uint64_t bytes) {
  Record& totals = current();
  ThreadSums& sums = mine(totals);
  const std::optional<Block> earlier = enter_block(block, {bytes, own_thread()});
  if (!earlier) {
    add(totals.untracked_blocks, 1);
  } else if (earlier->exists() && newest == block) {  // with the size that the program wants
    add(sums.requested_bytes, bytes - earlier->bytes);
    change_live(totals, bytes - earlier->bytes, 0);
    note_returned_block(block, earlier->bytes, bytes);
  } else {
    if (earlier->exists()) {  // it was freed in a way that we do not see
      add(totals.missed_frees, 1);
      change_live(totals, -earlier->bytes, -std::uint64_t{1});
    }
    add(sums.allocations, 1);
    add(sums.requested_bytes, bytes);
    add(sums.reused_bytes, note_returned_block(block, 0, bytes));
    add(sums.usable_bytes, usable_size(block));
    change_live(totals, bytes, 1);
  }
  newest = block;
}

}  // namespace

Call::Call(Entry entry, void* block, std::size_t, std::size_t) : entry_{entry}, given_{block} {
  begin_if_new();
  Record& totals = current();
  count(totals, entry);
  mine_ = tally;
  if (block == nullptr || newest == block) newest = nullptr;
  if (block == nullptr || !tracks_blocks) return;
  known_ = take_block(block);
  if (!known_.exists()) return;
  if (entry == Entry::realloc) {
    usable_before_ = usable_size(block);
  } else {
    note_free(totals, known_);
  }
}

void Call::finish(void* block, std::size_t bytes) {
  uncount_nested();
  if (block != nullptr) {
    tally.granted_bytes += bytes;
    add(current().granted_bytes, bytes);
  }
  if (entry_ == Entry::realloc && known_.exists()) {
    finish_resize(block, bytes);
  } else if (block != nullptr && tracks_blocks) {
    enter(block, bytes);
  }
}

void Call::uncount_nested() const {
  Record& totals = current();
  for (std::size_t i = 0; i < entries; ++i) add(totals.calls[i], mine_.calls[i] - tally.calls[i]);
  add(totals.granted_bytes, mine_.granted_bytes - tally.granted_bytes);
  tally = mine_;
}

// Before a reallocation it is not known whether the block will move, so that is noted afterwards;
// its address was out of the table meanwhile, since another thread may already have got it.
void Call::finish_resize(void* block, std::size_t bytes) const {
  Record& totals = current();
  const bool is_refused = block == nullptr && bytes != 0;
  if (block == given_ || is_refused) {
    enter_block(given_, {is_refused ? known_.bytes : bytes, known_.thread});
    if (is_refused) return;
    ThreadSums& sums = mine(totals);
    add(sums.resizes, 1);
    add(sums.requested_bytes, bytes > known_.bytes ? bytes - known_.bytes : 0);
    add(sums.reused_bytes, note_returned_block(block, known_.bytes, bytes));
    add(sums.usable_bytes, std::max(usable_size(block), usable_before_) - usable_before_);
    change_live(totals, bytes - known_.bytes, 0);
    return;
  }
  note_free(totals, known_);
  if (block != nullptr) enter(block, bytes);
}

void note_deep_binding(const char* library) {
  begin_if_new();
  Record& totals = current();
  const bool is_first = totals.deep_bindings.fetch_add(1, std::memory_order_relaxed) == 0;
  if (is_first) ::memccpy(totals.deep_bound, library, 0, sizeof totals.deep_bound - 1);
}

}  // namespace ts
