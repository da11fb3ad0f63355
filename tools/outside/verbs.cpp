// `explain` and `stats`: an account of a process, which goes on meanwhile.
#include "outside/verbs.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "common/system.h"
#include "libc/stats.h"
#include "outside/command_line.h"
#include "outside/report.h"
#include "tsmalloc/tsmalloc.h"

namespace ts {
namespace {

constexpr char help_of_explain[] =
    R"(Usage: tsmalloc explain [--json | --prometheus] PID

Say where the resident memory of a running process is. The parts: blocks of the program, free room
beside them, memory that waits to go back, and what is not the allocator's. The process needs no
preparation but to run with tsmalloc; nothing is called in it, and it is not stopped.

  --json        One line of JSON, in bytes.
  --prometheus  The text format of Prometheus, in bytes.

To look at a process takes the rights of a debugger. Exit status: 1 wrong usage, or the answer
cannot be written; 2 there is no account: no such process, no tsmalloc in it, another version of it,
nothing served yet, or no right to look.
)";
constexpr char help_of_stats[] =
    R"(Usage: tsmalloc stats [--json | --prometheus] [--interval SECONDS [--count N]] PID

Print what ts_stats() tells in a running process: the address space of tsmalloc by what it is for,
and counts. Quicker than explain, since no page is looked at. Nothing is called in the process, and it
is not stopped.

  --json              One line of JSON, in bytes.
  --prometheus        The text format of Prometheus, in bytes.
  --interval SECONDS  Again and again, 0.0001 s apart at least, until the process ends, or Ctrl-C.
  --count N           So many times, 1 s apart without --interval.

Rights and exit status: as of explain.
)";

constexpr char one_form[] = "one form at a time";

// As the engine measures itself, by its tables (core/view.cpp).
HeapMeasures measures_of(const Account& account, std::size_t mapped_bytes) {
  HeapMeasures measures;
  measures.segment_bytes = mapped_bytes;
  measures.free_bytes =
      mapped_bytes - std::min(mapped_bytes, account.small + account.large + account.waiting);
  measures.cached_bytes = account.bins;
  measures.waiting_bytes = account.waiting;
  measures.large_bytes = account.large;
  measures.slab_bytes = account.in_slabs;
  measures.ended_bytes = account.ended;
  measures.returned_bytes =
      mapped_bytes - std::min(mapped_bytes, account.engine() - account.tables);
  measures.table_bytes = account.tables;
  measures.heaps = account.heaps;
  measures.ended_heaps = account.ended_heaps;
  measures.grow_calls = account.growths;
  measures.purged_bytes = account.given_back;
  measures.limit_bytes = account.limit;
  measures.hard_limit_bytes = account.hard_limit;
  return measures.bounded();
}

// False if the process has ended.
bool print_stats(Process& process, const EngineImage& image, int format) {
  static Account account;
  if (!take_account(process, image, By::tables, account)) return false;
  const std::size_t mapped = image.page_count() * engine::page_bytes;
  expect_written(write_stats(measures_of(account, mapped), STDOUT_FILENO, format));
  return true;
}

// By another thread of it, if that by which it was looked at has ended.
bool print_anew(pid_t pid, int format) {
  Process process{pid};
  EngineImage image;
  return process.open(Process::Residency::none) == 0 && image.find(process) == Found::engine &&
         print_stats(process, image, format);
}

}  // namespace

int stats(char** arguments) {
  int format = TSMALLOC_TEXT;
  double seconds = 0;
  double count = 0;
  CommandLine line{"stats", help_of_stats, arguments};
  while (const char* const option = line.next_option()) {
    const auto is = [option](const char* name) { return std::strcmp(option, name) == 0; };
    if (is("--interval")) {
      seconds = line.next_number(option, 0.0001);
    } else if (is("--count")) {
      count = line.next_number(option, 1);
    } else if (is("--json") || is("--prometheus")) {
      if (format != TSMALLOC_TEXT) line.fail_at(option, one_form);
      format = is("--json") ? TSMALLOC_JSON : TSMALLOC_PROMETHEUS;
    } else {
      line.fail_at_option(option);
    }
  }
  Process process{line.pid()};
  EngineImage image;
  open_engine(process, Process::Residency::none, image);
  expect_readable(process, print_stats(process, image, format));
  if (seconds == 0 && count == 0) return 0;
  const auto interval = static_cast<Nanoseconds>((seconds != 0 ? seconds : 1) * ns_per_second);
  Nanoseconds next = now_ns();
  for (double printed = 1; count == 0 || printed < count; ++printed) {
    // Missed looks are left out.
    next = std::max(next + interval, now_ns());
    const timespec at{next / ns_per_second, next % ns_per_second};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) != 0) continue;
    if (image.look_again(process) == Found::engine && print_stats(process, image, format)) continue;
    if (print_anew(process.pid(), format)) continue;
    std::fprintf(stderr, "tsmalloc: process %d has ended, or runs another program\n",
                 process.pid());
    break;
  }
  return 0;
}

int explain(char** arguments) {
  auto* print = print_text;
  CommandLine line{"explain", help_of_explain, arguments};
  while (const char* const option = line.next_option()) {
    if (print != print_text) line.fail_at(option, one_form);
    if (std::strcmp(option, "--json") == 0) {
      print = print_json;
    } else if (std::strcmp(option, "--prometheus") == 0) {
      print = print_prometheus;
    } else {
      line.fail_at_option(option);
    }
  }
  static Account account;
  Process process{line.pid()};
  EngineImage image;
  open_engine(process, Process::Residency::read, image);
  expect_readable(process, take_account(process, image, By::kernel, account));
  static PinnedSites sites;
  sites.read(process, image);
  expect_written(print(process, account, sites));
  return 0;
}

}  // namespace ts
