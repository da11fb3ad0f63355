// `purge`: returns free memory of a process to the system.
//
// The free spans of the page heap are not used by any thread while its lock is free and all threads
// are stopped. They are purged in short stops, between which the process runs. The engine's tables
// do not change: a dirty span stays dirty, and allocating from it touches the pages again.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "common/json_line.h"
#include "inspect/command_line.h"
#include "inspect/page_walk.h"
#include "inspect/report.h"
#include "inspect/stopped_threads.h"
#include "inspect/system_caller.h"
#include "inspect/verbs.h"

namespace ts {
namespace {

constexpr char help_of_purge[] =
    "Usage: tsmalloc purge [--json] [--force] " TSMALLOC_USAGE_OF_PROCESSES R"(

Return the free pages of running processes to the operating system. A process needs no preparation and
may be idle: none of its code runs. It is stopped a few times, for about 2 ms each. Memory that is free
within slabs, in cache bins, or not yet collected by its owner is not returned; see tsmalloc explain PID.

Examples:
  tsmalloc purge 4711
  tsmalloc purge --json --tree $(pidof -s server)

  --json          A line of JSON per process, in bytes and microseconds.
  --force         Also in a seccomp sandbox that may kill the process for calling madvise.
)" TSMALLOC_HELP_OF_PROCESSES R"(
Needs permission to ptrace the process. Exit status: 1 usage error, or the answer cannot be written; 2 a
process could not be purged: no such process, no tsmalloc in it, another version of it, nothing allocated
yet, permission denied, a sandbox, a thread that stays in the kernel, or a machine other than x86-64. The
reason is on standard error; the other processes are purged.
)";

// Part of a free span, for one system call.
struct Piece {
  std::size_t page;  // of the span
  std::uint32_t span_pages;
  bool zeroed;
  std::uint32_t first;  // page, within the span
  std::uint32_t pages;
  std::size_t resident_bytes;
};

class Purge {
 public:
  explicit Purge(Process& process) : process_{process} {}

  // Repeats until nothing is left, or what is left no longer shrinks.
  void run() {
    constexpr int passes = 4;  // meanwhile, spans are cut and joined
    for (int pass = 0; pass < passes && should_continue(); ++pass) {
      open_engine(process_, Process::Residency::none, image_);
      find_pieces();
      if (pieces_.is_empty()) return;
      for (next_ = 0; next_ < pieces_.count() && should_continue();) stop_and_purge();
    }
  }

  std::size_t bytes() const { return bytes_; }
  std::size_t refused_bytes() const { return refused_bytes_; }
  int refusal() const { return refusal_; }
  // The process was inside its page heap at too many stops in a row.
  bool is_given_up() const { return attempts_ > max_attempts; }
  std::size_t stops() const { return stops_; }
  Nanoseconds longest_ns() const { return longest_ns_; }

 private:
  static constexpr int max_attempts = 200;

  bool is_refused() const { return refusal_ != 0; }
  bool should_continue() const { return !is_refused() && !is_given_up(); }

  void find_pieces() {
    pieces_.clear();
    process_.forget_residency();
    std::size_t unclear = 0;
    SpanWindow spans{process_, image_};
    expect_readable(process_, PageWalk{process_, image_, spans, unclear, *this}.run());
  }

  // Called by PageWalk. Pieces of free spans end where huge pages do, so that none is split.
  friend class PageWalk<Purge>;
  static bool visit_slab(std::size_t, std::size_t, engine::PageMapEntry) { return true; }
  static void visit_large(std::size_t, std::size_t, std::size_t) {}
  void visit_other(std::size_t first, const engine::Span& span) {
    if (span.state != engine::SpanState::free) return;
    constexpr std::size_t maximum = (std::size_t{4} << 20) / engine::page_bytes;
    const std::size_t base = image_.map().base / engine::page_bytes;
    const std::size_t end = first + span.pages;
    for (std::size_t page = first; page < end;) {
      const std::size_t piece_end =
          std::min(end, (base + page + maximum) / maximum * maximum - base);
      const std::size_t resident =
          process_.resident_bytes({address_of(page), address_of(piece_end)});
      if (resident != 0)
        pieces_.add({first, span.pages, is_set(&span.zeroed),
                     static_cast<std::uint32_t>(page - first),
                     static_cast<std::uint32_t>(piece_end - page), resident});
      page = piece_end;
    }
  }

  std::uintptr_t address_of(std::size_t page) const {
    return image_.map().base + page * engine::page_bytes;
  }

  // For a while; then the process runs for longer than it was stopped.
  void stop_and_purge() {
    constexpr useconds_t min_pause_us = 500;
    constexpr Nanoseconds pause_per_stop = 4;
    StoppedThreads threads{process_};
    expect_stopped(process_, threads, threads.stop());
    const bool is_purged = purge_while_stopped(threads);
    threads.detach_all();
    const Nanoseconds stopped = threads.stopped_ns();
    longest_ns_ = std::max(longest_ns_, stopped);
    ++stops_;
    attempts_ = is_purged ? 0 : attempts_ + 1;
    usleep(min_pause_us + static_cast<useconds_t>(pause_per_stop * stopped / ns_per_us));
  }

  // False if a thread is inside the page heap, or none can make the calls.
  bool purge_while_stopped(const StoppedThreads& threads) {
    constexpr Nanoseconds longest_stop = 2 * ns_per_ms;
    const Copy<engine::PageHeap> page_heap;
    SystemCaller caller;
    expect_readable(process_, page_heap.read(process_, image_.page_heap()));
    if (page_heap->lock().is_locked() || !caller.begin(process_, threads)) return false;
    const Nanoseconds end = now_ns() + longest_stop;
    for (; next_ < pieces_.count() && now_ns() < end; ++next_) {
      const Piece& piece = pieces_[next_];
      if (!is_free(piece, page_heap[0])) continue;
      refusal_ = caller.call(SYS_madvise, address_of(piece.page + piece.first),
                             piece.pages * engine::page_bytes, MADV_DONTNEED);
      (is_refused() ? refused_bytes_ : bytes_) += piece.resident_bytes;
      if (is_refused()) break;
    }
    caller.end();
    return true;
  }

  // Whether its span is still as found: in a list of the page heap. (The descriptors of pages
  // within a span keep old values, but no list contains them.)
  bool is_free(const Piece& piece, const engine::PageHeap& page_heap) const {
    const std::uintptr_t place = address_in(image_.map().spans, piece.page);
    const auto* const there = reinterpret_cast<const engine::Span*>(place);
    const Copy<engine::Span> span;
    if (!span.read(process_, place) || span->state != engine::SpanState::free ||
        span->pages != piece.span_pages || is_set(&span->zeroed) != piece.zeroed)
      return false;
    if (span->previous == nullptr)
      return page_heap.has_first(there, piece.span_pages, piece.zeroed);
    const engine::Span* next = nullptr;
    return process_.read(address_in(span->previous) + offsetof(engine::Span, next), next) &&
           next == there;
  }

  Process& process_;
  EngineImage image_;
  List<Piece> pieces_;
  std::size_t next_ = 0;  // of the pieces
  int attempts_ = 0;
  std::size_t bytes_ = 0;
  std::size_t refused_bytes_ = 0;
  int refusal_ = 0;
  std::size_t stops_ = 0;
  Nanoseconds longest_ns_ = 0;
};

// A seccomp filter may kill the process for a system call that it does not make itself. If the
// engine has purged memory before, the filter evidently allows it.
void expect_unsandboxed(const Process& process, const EngineImage& image, bool is_forced) {
  const std::int64_t mode = process.status("Seccomp:");
  std::size_t given_back = 0;
  expect_readable(process, process.read(image.given_back_bytes(), given_back));
  constexpr std::int64_t strict = 1;
  if (mode <= 0 || (mode != strict && (is_forced || given_back != 0))) return;
  fail(exit_missing, "process %d (%s) runs under seccomp, which may kill it for calling madvise%s",
       process.pid(), process.command(),
       mode == strict ? "" : "; if its filter allows madvise, use --force");
}

int print_purge(const Process& process, const Purge& purge) {
  std::printf("Process %d (%s): %.1f MiB returned; stopped %zu times, for at most %.1f ms\n",
              process.pid(), process.command(), mib(purge.bytes()), purge.stops(),
              static_cast<double>(purge.longest_ns()) / static_cast<double>(ns_per_ms));
  if (purge.stops() == 0)
    std::printf("It has no resident free pages: tsmalloc explain %d shows where its memory is\n",
                process.pid());
  return std::fflush(stdout) == 0 ? 0 : errno;
}

int print_purge_as_json(const Process& process, const Purge& purge) {
  const auto number = [](auto n) { return static_cast<std::int64_t>(n); };
  JsonLine line{STDOUT_FILENO};
  line.begin_object();
  line.add_text("schema", "tsmalloc-purge/1");
  line.add("pid", process.pid());
  line.add_text("command", process.command());
  line.add("bytes", number(purge.bytes()));
  line.add("refused_bytes", number(purge.refused_bytes()));
  line.add("stops", number(purge.stops()));
  line.add("longest_stop_us", number(purge.longest_ns() / ns_per_us));
  line.end_object();
  return line.finish();
}

}  // namespace

namespace {

int purge_process(pid_t pid, bool is_forced, bool is_json, std::size_t& bytes) {
  Process process{pid};
  EngineImage image;
  open_engine(process, Process::Residency::none, image);
  if (!SystemCaller::is_possible())
    fail(exit_missing,
         "purging another process works only on x86-64 so far: TSMALLOC_BACKGROUND=on, or "
         "ts_purge() in the program, works everywhere");
  expect_unsandboxed(process, image, is_forced);
  Purge purge{process};
  purge.run();
  bytes = purge.bytes();
  expect_written((is_json ? print_purge_as_json : print_purge)(process, purge));
  if (purge.refusal() == ESRCH)
    fail(exit_missing, "process %d (%s) has ended", process.pid(), process.command());
  if (purge.is_given_up())
    fail(exit_missing,
         "process %d (%s) was inside its page heap at every attempt, so some memory was not "
         "purged: try again",
         process.pid(), process.command());
  if (purge.refusal() != 0)
    fail(exit_missing, "the kernel refused the rest: %s; it does so for locked memory (mlock)",
         strerrordesc_np(purge.refusal()));
  return 0;
}

}  // namespace

int purge(char** arguments) {
  bool is_forced = false;
  bool is_json = false;
  CommandLine line{"purge", help_of_purge, arguments};
  while (const char* const option = line.next_option()) {
    if (std::strcmp(option, "--json") == 0) {
      is_json = true;
    } else if (std::strcmp(option, "--force") == 0) {
      is_forced = true;
    } else {
      line.fail_at_option(option);
    }
  }
  std::size_t sum = 0;
  if (line.processes().is_single()) return purge_process(line.pid(), is_forced, is_json, sum);
  List<pid_t> pids;
  line.processes().list_or_fail(pids);
  SharedResults<std::size_t> bytes{pids.count()};
  const int status = Children{}.run(pids, [&](pid_t pid, std::size_t i) {
    return purge_process(pid, is_forced, is_json, bytes[i]);
  });
  for (const std::size_t each : bytes) sum += each;
  if (!is_json) std::printf("%.1f MiB returned in total\n", mib(sum));
  expect_written(std::fflush(stdout) == 0 ? 0 : errno);
  return status;
}

}  // namespace ts
