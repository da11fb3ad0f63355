#include "reliability/faults/drill.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "base/bits.h"

namespace ts::faults {
namespace {

constexpr unsigned seconds_per_run = 30;
constexpr int kept_errno = 4711;
constexpr unsigned failures_told = 5;
constexpr std::size_t kilobyte = 1024;
constexpr std::size_t megabyte = kilobyte * kilobyte;

// What a run reports to the process that started it.
struct Report {
  Record record;
  std::size_t refusals;  // null from the heap
  std::size_t in_use;    // at the end
  char complaint[200];
};

TryMore try_more = nullptr;
Report* report = nullptr;
bool tells_itself = false;  // the complaint

[[noreturn, gnu::format(printf, 1, 2)]] void complain(const char* format, ...) {
  disarm();
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(report->complaint, sizeof report->complaint, format, arguments);
  va_end(arguments);
  if (tells_itself) std::printf("FAILED: %s: %s\n", library_name(), report->complaint);
  if (tells_itself) std::fflush(stdout);
  ::_exit(1);
}

// Only tsmalloc promises to keep errno also when it succeeds.
bool is_ours() {
  static const bool is = std::strncmp(library_name(), "libtsmalloc", 11) == 0;
  return is;
}

void* allocate_aligned(std::size_t alignment, std::size_t bytes) {
  if (alignment % 64 != 0) return ::memalign(alignment, bytes);
  void* const untouched = &errno;
  void* block = untouched;
  const int error = ::posix_memalign(&block, alignment, bytes);
  if (error == 0) return block;
  // It reports this only by its result.
  if (block != untouched) std::abort();
  errno = error;
  return nullptr;
}

// SIZE_MAX where the function is not the tested library's, but libc's after it.
std::size_t bytes_in_use() {
  Dl_info its;
  Dl_info mallocs;
  if (::dladdr(reinterpret_cast<void*>(&::mallinfo2), &its) == 0 ||
      ::dladdr(reinterpret_cast<void*>(&std::malloc), &mallocs) == 0 ||
      its.dli_fbase != mallocs.dli_fbase)
    return SIZE_MAX;
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

// ---- the pieces that are live ----

struct Piece {
  unsigned char* begin;
  std::size_t bytes;
  std::uint64_t seed;
};
constexpr std::size_t most_pieces = 4096;
Piece pieces[most_pieces];
std::size_t piece_count = 0;

unsigned char pattern(const Piece& piece, std::size_t offset) {
  return static_cast<unsigned char>(mix(piece.seed + offset) >> 56);
}

// Writes both ends, and part of every eighth page in between.
template <class Visit>
void each_offset(const Piece& piece, Visit visit) {
  constexpr std::size_t edge = 40;
  constexpr std::size_t step = 8 * 4096 - 8;
  for (std::size_t i = 0; i < std::min(edge, piece.bytes); ++i) visit(i);
  for (std::size_t i = edge; i + edge < piece.bytes; i += step) visit(i);
  for (std::size_t i = piece.bytes - std::min(edge, piece.bytes); i < piece.bytes; ++i) visit(i);
}

void fill(Piece& piece) {
  static std::uint64_t next_seed = 1;
  piece.seed = mix(next_seed++);
  each_offset(piece, [&](std::size_t i) { piece.begin[i] = pattern(piece, i); });
}

// The live pieces among the first `bytes` that are filled.
void check(const Piece& piece, std::size_t bytes) {
  each_offset(piece, [&](std::size_t i) {
    if (i < bytes && piece.begin[i] != pattern(piece, i))
      complain("byte %zu of a block of %zu bytes was overwritten", i, piece.bytes);
  });
}
void check(const Piece& piece) { check(piece, piece.bytes); }

// The heap's block; null if it refused.
void* answered(void* block, std::size_t bytes) {
  if (block == nullptr) {
    if (errno != ENOMEM) complain("refused %zu bytes with errno %d", bytes, errno);
    ++report->refusals;
  } else if (errno != kept_errno && is_ours()) {
    complain("served %zu bytes and set errno to %d", bytes, errno);
  }
  return block;
}

void keep(void* block, std::size_t bytes) {
  if (answered(block, bytes) == nullptr) return;
  if (piece_count == most_pieces) complain("the workload has too many pieces");
  Piece& piece = pieces[piece_count++];
  piece = {static_cast<unsigned char*>(block), bytes, 0};
  fill(piece);
}

void take(std::size_t bytes) {
  errno = kept_errno;
  keep(std::malloc(bytes), bytes);
}

void take_zeroed(std::size_t bytes) {
  errno = kept_errno;
  auto* const block = static_cast<unsigned char*>(std::calloc(1, bytes));
  for (std::size_t i = 0; block != nullptr && i < bytes; i += i < 100 ? 1 : 509) {
    if (block[i] != 0) complain("byte %zu of %zu zeroed ones is %d", i, bytes, block[i]);
  }
  keep(block, bytes);
}

void take_aligned(std::size_t alignment, std::size_t bytes) {
  errno = kept_errno;
  void* const block = allocate_aligned(alignment, bytes);
  if (address_of(block) % alignment != 0) complain("%p, not aligned to %zu", block, alignment);
  keep(block, bytes);
}

void drop(std::size_t index) {
  Piece& piece = pieces[index];
  check(piece);
  errno = kept_errno;
  std::free(piece.begin);
  if (errno != kept_errno) complain("free set errno to %d", errno);
  piece = pieces[--piece_count];
}

void drop_down_to(std::size_t count) {
  while (piece_count > count) drop(piece_count - 1);
}

// Every second one from there on.
void thin_out_from(std::size_t first) {
  for (std::size_t i = first; i < piece_count; ++i) drop(i);
}

void resize(std::size_t index, std::size_t bytes) {
  Piece& piece = pieces[index];
  check(piece);
  errno = kept_errno;
  void* const moved = std::realloc(piece.begin, bytes);
  if (answered(moved, bytes) == nullptr) return check(piece);
  piece.begin = static_cast<unsigned char*>(moved);
  check(piece, bytes);
  piece.bytes = bytes;
  fill(piece);
}

// ---- the workload ----

void use_small_blocks() {
  for (std::size_t bytes = 0; bytes <= 32 * kilobyte; bytes = bytes * 5 / 4 + 16) {
    take(bytes);
    take_zeroed(bytes);
  }
  for (int i = 0; i < 300; ++i) take(1000);
  thin_out_from(40);
}

void use_large_blocks() {
  for (std::size_t bytes = 33 * kilobyte; bytes < 300 * kilobyte; bytes += 20 * kilobyte) {
    take(bytes);
    take(60 * kilobyte);
  }
  take_zeroed(megabyte);
  thin_out_from(piece_count / 2);
  take_zeroed(700 * kilobyte);
}

void use_aligned_blocks() {
  for (std::size_t alignment = 32; alignment <= megabyte; alignment *= 2) {
    take_aligned(alignment, 100);
    take_aligned(alignment, 3 * alignment / 2);
  }
}

void grow_and_shrink() {
  for (std::size_t bytes : {300 * kilobyte, 40 * kilobyte, std::size_t{20}}) {
    const std::size_t growing = piece_count;
    take(bytes);
    if (piece_count == growing) continue;
    for (; bytes < 2 * megabyte; bytes += bytes * 2 / 3) {
      resize(growing, bytes);
      take(bytes / 8);  // may be in the way of the next step
    }
    resize(growing, pieces[growing].bytes / 2);
    resize(growing, 200);
  }
}

// More at once than is kept, then enough time for the rest to be considered idle.
void have_a_peak() {
  const std::size_t before = piece_count;
  for (int i = 0; i < 8; ++i) take(5 * megabyte);
  drop_down_to(before);
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 3; ++j) take(2 * megabyte);
    pass_time(300);
    drop_down_to(before);
  }
}

// Another thread's part: it leaves blocks behind, and frees some of the first thread's.
void* be_thread(void*) {
  const std::size_t before = piece_count;
  for (std::size_t bytes = 24; bytes < 100 * kilobyte; bytes *= 3) {
    take(bytes);
    take(bytes);
  }
  for (int i = 0; i < 100; ++i) take(200);
  for (std::size_t i = before - std::min<std::size_t>(before, 60); i < before; ++i) {
    if (i < piece_count) drop(i);
  }
  return nullptr;
}

void run_thread() {
  pthread_t thread;
  // It needs memory, too.
  if (pthread_create(&thread, nullptr, be_thread, nullptr) == 0) pthread_join(thread, nullptr);
}

void work() {
  use_small_blocks();
  run_thread();
  use_large_blocks();
  use_aligned_blocks();
  grow_and_shrink();
  run_thread();
  have_a_peak();
  if (try_more != nullptr) {
    if (const char* const wrong = try_more()) complain("%s", wrong);
  }
  ::malloc_trim(0);
  use_small_blocks();
  use_large_blocks();
}

// Nothing fails any more.
void expect_health() {
  for (std::size_t i = 0; i < piece_count; ++i) check(pieces[i]);
  const std::size_t before = report->refusals;
  const std::size_t live = piece_count;
  for (const std::size_t bytes :
       {std::size_t{10}, std::size_t{1000}, 40 * kilobyte, megabyte, 8 * megabyte}) {
    for (int i = 0; i < 3; ++i) take(bytes);
  }
  if (report->refusals != before) complain("memory is refused though the system refuses none");
  drop_down_to(live);
  run_thread();
  if (report->refusals != before) complain("a thread is refused memory that there is");
  drop_down_to(0);
  ::malloc_trim(0);
  report->in_use = bytes_in_use();
}

[[noreturn]] void be_armed_run() {
  ::alarm(seconds_per_run);
  work();
  disarm();
  expect_health();
  ::_exit(0);
}

[[noreturn]] void be_run(const Plan& plan) {
  arm(plan, report->record);
  be_armed_run();
}

// ---- all runs ----

// Runs it in a copy of this process; returns whether all was well.
bool run(const Plan& plan) {
  *report = {};
  const pid_t child = ::fork();
  if (child == 0) be_run(plan);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status) && report->complaint[0] == '\0')
    std::snprintf(report->complaint, sizeof report->complaint, "%s",
                  WTERMSIG(status) == SIGALRM ? "it hung" : ::strsignal(WTERMSIG(status)));
  return status == 0;
}

// A set of places, small enough for a linear search.
class Places {
 public:
  bool add(std::uint64_t place) {
    if (std::find(places_, places_ + count_, place) != places_ + count_) return false;
    if (count_ < most) places_[count_++] = place;
    return true;
  }
  std::size_t count() const { return count_; }

 private:
  static constexpr std::size_t most = 4096;
  std::uint64_t places_[most];
  std::size_t count_ = 0;
};

struct Sums {
  std::size_t runs = 0;
  std::size_t failures = 0;
  std::size_t refusals = 0;
  std::size_t most_lost = 0;
  unsigned told = 0;
  Places places;
};

void try_plan(const Plan& plan, std::size_t clean_in_use, Call first_kind, Sums& sums) {
  const bool is_well = run(plan);
  ++sums.runs;
  sums.failures += report->record.failed;
  sums.refusals += report->refusals;
  const std::size_t failed = std::min<std::size_t>(report->record.failed, most_calls);
  for (std::size_t i = 0; i < failed; ++i) {
    const std::uint64_t place = report->record.failed_places[i];
    if (place != 0) sums.places.add(place);
  }
  if (is_well) {
    if (clean_in_use != SIZE_MAX && report->in_use > clean_in_use)
      sums.most_lost = std::max(sums.most_lost, report->in_use - clean_in_use);
    return;
  }
  if (++sums.told <= failures_told)
    std::printf("FAILED: %s, %s: call %u (%s)%s: %s\n", library_name(), plan.world.name, plan.first,
                name_of(first_kind),
                plan.count == 1   ? ""
                : plan.count == 2 ? " and the next"
                                  : " and all after it",
                report->complaint);
}

// Whether the fault changes anything for an allocator that behaves as in `record`.
bool is_of_interest(const World& world, const Record& record) {
  return (!world.break_is_stuck || record.has_moved_break) &&
         (record.has_placed || (!world.no_placement && world.most_at_once == 0));
}

// Which calls fail in turn: the first ones, one from each place, and others at even intervals.
void try_world(const World& world, std::size_t most, const Record& clean, Sums& sums) {
  constexpr std::size_t dense = 8;
  const std::size_t clean_in_use = report->in_use;
  const std::size_t calls = std::min<std::size_t>(clean.calls, most_calls);
  const std::size_t step = std::max<std::size_t>(1, calls / most);
  Places seen;
  for (std::size_t i = 0; i < calls && sums.told < failures_told; ++i) {
    const bool is_new = seen.add(clean.places[i]);
    if (!is_new && i >= dense && i % step != 0) continue;
    for (const std::uint32_t count : {1U, 2U, never})
      try_plan({world, static_cast<std::uint32_t>(i), count}, clean_in_use, clean.kinds[i], sums);
  }
}

}  // namespace

const char* library_name() {
  Dl_info info;
  if (::dladdr(reinterpret_cast<void*>(&std::malloc), &info) == 0) return "?";
  const char* const base = std::strrchr(info.dli_fname, '/');
  return base == nullptr ? info.dli_fname : base + 1;
}

void run_armed() {
  static Report own;
  report = &own;
  tells_itself = true;
  be_armed_run();
}

int run_drill(const World* worlds, std::size_t world_count, std::size_t calls_per_world,
              TryMore more) {
  try_more = more;
  void* const shared =
      ::mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  report = static_cast<Report*>(shared);
  static char buffer[4096];  // a libc allocation, which the heap under test would have to provide
  std::setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
  bool is_sound = true;
  static Record clean;
  for (std::size_t i = 0; i < world_count; ++i) {
    if (i != 0 && !is_of_interest(worlds[i], clean)) continue;
    static Sums sums;
    sums = {};
    if (!run({worlds[i], never, 0})) {
      std::printf("FAILED: %s, %s, without a failing call: %s\n", library_name(), worlds[i].name,
                  report->complaint);
      is_sound = false;
      continue;
    }
    clean = report->record;
    try_world(worlds[i], calls_per_world, clean, sums);
    is_sound = is_sound && sums.told == 0;
    if (!clean.catches)
      std::printf("%s, %s: calls by instruction cannot be made to fail here\n", library_name(),
                  worlds[i].name);
    if (clean.catches && sums.refusals == 0) {
      std::printf("FAILED: %s, %s: no failing call led to a refusal\n", library_name(),
                  worlds[i].name);
      is_sound = false;
    }
    std::printf(
        "%s, %s: %u calls of the system; %zu runs, %zu failures at %zu places, %zu refusals, %s; "
        "%zu KiB lost at most\n",
        library_name(), worlds[i].name, clean.calls, sums.runs, sums.failures, sums.places.count(),
        sums.refusals, sums.told == 0 ? "everything intact" : "NOT SOUND",
        sums.most_lost / kilobyte);
    std::fflush(stdout);
  }
  return is_sound ? 0 : 1;
}

}  // namespace ts::faults
