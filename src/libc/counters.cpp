// The counts that each library reports, when they are written, and their format
// (docs/formats/counters.md).
#include "libc/counters.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>

#include "base/event_counts.h"
#include "os/cancellation.h"
#include "os/counting.h"

namespace ts {
namespace {

// ---- which strategies have which counts ----

constexpr unsigned lock = 1;
constexpr unsigned rwlock = 2;
constexpr unsigned nolock = 4;
constexpr unsigned arenas = 8;
constexpr unsigned cached = 16;
constexpr unsigned lockfree = 32;
constexpr unsigned engine = 64;
constexpr unsigned classic = lock | rwlock | nolock | arenas | cached | lockfree;
constexpr unsigned all = classic | engine;

struct Counted {
  const char* name;
  unsigned strategies;
  Event event;
};

constexpr Counted table[] = {
    {"allocations", all, Event::allocations},
    {"frees", all, Event::frees},
    {"growth_calls", all, Event::growth_calls},
    {"growth_bytes", all, Event::growth_bytes},
    {"trim_calls", classic, Event::trim_calls},
    {"trimmed_bytes", classic, Event::trimmed_bytes},
    {"purge_calls", all, Event::purge_calls},
    {"purged_bytes", all, Event::purged_bytes},
    {"lock_acquisitions", all, Event::lock_acquisitions},
    {"lock_waits", all, Event::lock_waits},
    {"lock_parks", all, Event::lock_parks},
    {"lock_wait_ns", all, Event::lock_wait_ns},
    {"searches", classic, Event::searches},
    {"blocks_searched", classic, Event::blocks_searched},
    {"splits", classic, Event::splits},
    {"merges", classic, Event::merges},
    {"foreign_frees", nolock, Event::foreign_frees},
    {"heaps_created", nolock | engine, Event::heaps_created},
    {"adopted_heaps", nolock | engine, Event::adopted_heaps},
    {"arenas_created", arenas, Event::arenas_created},
    {"arena_switches", arenas, Event::arena_switches},
    {"cache_hits", cached, Event::cache_hits},
    {"cache_refills", cached, Event::cache_refills},
    {"cache_refilled_blocks", cached, Event::cache_refilled_blocks},
    {"cache_returns", cached, Event::cache_returns},
    {"cache_returned_blocks", cached, Event::cache_returned_blocks},
    {"retries", lockfree, Event::retries},
    {"bin_refills", engine, Event::bin_refills},
    {"bin_overflows", engine, Event::bin_overflows},
    {"slabs_created", engine, Event::slabs_created},
    {"slabs_released", engine, Event::slabs_released},
    {"remote_frees", engine, Event::remote_frees},
    {"remote_batches_sent", engine, Event::remote_batches_sent},
    {"remote_collects", engine, Event::remote_collects},
    {"spans_reused_dirty", engine, Event::spans_reused_dirty},
    {"spans_clean", engine, Event::spans_clean},
    {"large_allocations", engine, Event::large_allocations},
    {"large_moves", engine, Event::large_moves},
};
static_assert(std::size(table) == event_count);
static_assert([] {
  for (std::size_t i = 0; i < event_count; ++i) {
    if (table[i].event != static_cast<Event>(i)) return false;
  }
  return true;
}());

// Derives a library's strategy from its name.
unsigned strategy_of(const char* library) noexcept {
  constexpr struct {
    const char* name;
    unsigned strategy;
  } strategies[] = {{"lock-", lock},     {"rwlock-", rwlock}, {"nolock-", nolock},
                    {"arenas-", arenas}, {"cached-", cached}, {"lockfree-", lockfree}};
  for (const auto& known : strategies) {
    if (std::strncmp(library, known.name, std::strlen(known.name)) == 0) return known.strategy;
  }
  return engine;
}

// ---- the state of the reports ----

constexpr std::size_t max_folder_bytes = 3072;  // leaves room for names in a path

// Constant once the process runs, except in the child of a fork, which has another number.
constinit const CountedHeap* heap = nullptr;
constinit char folder[max_folder_bytes] = {};  // empty: no reports
constinit std::uint64_t process = 0;

// Whether a thread is writing a report or inspecting the heap for one.
constinit std::atomic<std::uint32_t> is_busy{0};
constinit bool is_reported = false;  // is_busy

// Statistics at the last picture or at exit; protected by is_busy.
constinit HeapMeasures measures;
constinit bool is_measured = false;
constinit std::uint64_t pictures = 0;

// One report at a time.
class Report {
 public:
  // Waits its turn, unless a signal handler may have interrupted a report of this very thread.
  explicit Report(bool waits) noexcept : errno_{errno} {
    while (!(is_mine_ = is_busy.exchange(1, std::memory_order_acquire) == 0) && waits) spin_pause();
  }
  ~Report() {
    if (is_mine_) is_busy.store(0, std::memory_order_release);
    errno = errno_;
  }
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;
  bool is_mine() const noexcept { return is_mine_; }

 private:
  UncountedScope uncounted_;
  os::CancellationDisabled completes_it_;
  int errno_;
  bool is_mine_ = false;
};

// The child of vfork shares its parent's memory and has nothing of its own to report.
bool is_own_process() noexcept { return os::process_id() == process; }

void measure() noexcept {
  measures = heap->measures();
  is_measured = true;
}

// ---- counts ----

// Writes the counts of one thread as a JSON object and adds them to `totals`.
void write_thread(os::TextFile& file, const ThreadCounts& counts, unsigned strategy,
                  std::uint64_t (&totals)[event_count]) noexcept {
  const char* separator = "{";
  for (std::size_t i = 0; i < event_count; ++i) {
    if ((table[i].strategies & strategy) == 0) continue;
    const std::uint64_t value = counts[table[i].event];
    totals[i] += value;
    file.text(separator);
    file.quoted(table[i].name);
    file.text(":");
    file.number(value);
    separator = ",";
  }
  file.text("}");
}

void write_totals(os::TextFile& file, unsigned strategy,
                  const std::uint64_t (&totals)[event_count]) noexcept {
  const char* separator = "{";
  const auto write = [&](const char* name, std::uint64_t value) {
    file.text(separator);
    file.quoted(name);
    file.text(":");
    file.number(value);
    separator = ",";
  };
  for (std::size_t i = 0; i < event_count; ++i) {
    if ((table[i].strategies & strategy) != 0) write(table[i].name, totals[i]);
  }
  if (is_measured) {
    write("free_blocks_at_snapshot", measures.free_blocks);
    write("free_bytes_at_snapshot", measures.free_bytes);
    write("segment_bytes_at_snapshot", measures.segment_bytes);
  }
  file.text("}");
}

void write_counts() noexcept {
  const unsigned strategy = strategy_of(heap->name);
  os::TextFile file{folder, process};
  file.text("{\"schema\":\"tsmalloc-counters/1\",\"pid\":");
  file.number(process);
  file.text(",\"allocator\":");
  file.quoted(heap->name);
  file.text(",\"threads\":[");
  std::uint64_t totals[event_count] = {};
  const std::size_t threads = counted_threads();
  for (std::size_t i = 0; i < threads; ++i) {
    file.text(i == 0 ? "\n" : ",\n");
    write_thread(file, counts_of_thread(i), strategy, totals);
  }
  file.text("\n],\"totals\":");
  write_totals(file, strategy, totals);
  file.text("}\n");
  file.publish(0, ".counters.json");
}

// `may_lock` is false if the calling thread may be in the middle of anything.
void report_counts(bool may_lock) noexcept {
  if (folder[0] == '\0' || !is_own_process()) return;
  const Report report{may_lock};
  if (!report.is_mine() || is_reported) return;
  is_reported = true;
  if (may_lock && !is_measured) measure();
  write_counts();
}

void at_process_exit(void*) noexcept { report_counts(true); }

void in_forked_child() noexcept {
  reset_event_counts();
  process = os::process_id();
  is_busy.store(false, std::memory_order_relaxed);
  is_reported = false;
  is_measured = false;
  pictures = 0;
}

// ---- pictures ----

struct Picture {
  const char* label;
  std::uint64_t number;
};

bool draw(void* argument) noexcept {
  const auto& picture = *static_cast<const Picture*>(argument);
  return write_map_file(*heap, picture.label, folder, process, picture.number);
}

// Another thread may hold a lock of the heap when the process is copied. Then the copy times out,
// and another one is tried.
void draw_in_copy(Picture& picture) noexcept {
  for (int tries = 0; tries < 2; ++tries) {
    if (os::run_in_copy(draw, &picture)) return;
    const os::TextFile removed_at_once{folder, process};
  }
}

}  // namespace

void begin_counting(const CountedHeap& counted_heap, const char* const* environment) noexcept {
  heap = &counted_heap;
  process = os::process_id();
  constexpr char variable[] = "TSMALLOC_COUNTERS=";
  constexpr std::size_t length = sizeof variable - 1;
  for (; *environment != nullptr; ++environment) {
    const char* const path = *environment + length;
    if (std::strncmp(*environment, variable, length) != 0 || path[0] == '\0') continue;
    if (!os::make_absolute(path, folder, sizeof folder)) folder[0] = '\0';
  }
  if (folder[0] == '\0') return;
  os::call_in_forked_child(in_forked_child);
  os::call_at_process_exit(at_process_exit);
}

void write_heap_map(const char* label) noexcept {
  if (folder[0] == '\0' || !is_own_process()) return;
  const Report report{true};
  measure();
  Picture picture{label != nullptr ? label : "", ++pictures};
  if (heap->walk_is_safe) {
    draw(&picture);
  } else {
    draw_in_copy(picture);
  }
}

void report_and_end_process(int status) noexcept {
  report_counts(false);
  os::end_process(status);
}

}  // namespace ts
