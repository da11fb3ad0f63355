// `explain` and `stats`: an account of a process while it runs.
#include "inspect/verbs.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "common/system.h"
#include "inspect/heap_map.h"
#include "libc/stats.h"
#include "os/atomic_file.h"
#include "tsmalloc/tsmalloc.h"

namespace ts {
namespace {

constexpr char help_of_explain[] =
    "Usage: tsmalloc explain [--json | --prometheus] " TSMALLOC_USAGE_OF_PROCESSES R"(
       tsmalloc explain --map [--json] PID
       tsmalloc explain --html FILE PID

Show where the resident memory of a running process is: in the program's blocks, in free memory next
to them, in free pages, or outside the allocator. The process only has to use tsmalloc: it is not
stopped, and no code is injected. Without tsmalloc, shows what the kernel knows. Several processes are
shown as a table with totals, in proportional set sizes.

Examples:
  tsmalloc explain $(pidof server)
  tsmalloc explain --map 4711
  tsmalloc explain --html map.html 4711

  --json          A line of JSON per process, in bytes; with several, one more for the totals.
  --prometheus    The text format of Prometheus, in bytes.
  --map           A map of the allocator's memory: slabs and how full they are, large blocks, free
                  and purged pages, and what keeps sparse slabs alive.
  --html FILE     The map as an HTML page.
)" TSMALLOC_HELP_OF_PROCESSES R"(
Needs permission to ptrace the process. Exit status: 1 usage error, or the answer cannot be written; 2 a
process could not be read, because it does not exist or permission was denied; the reason is on standard
error, and the other processes are shown.
)";
constexpr char help_of_stats[] =
    "Usage: tsmalloc stats [--json | --prometheus] [--interval SECONDS [--count N]]\n"
    "                      " TSMALLOC_USAGE_OF_PROCESSES R"(

Print what ts_stats() reports, for a running process: the address space of tsmalloc by use, and counts.
Faster than explain, since it does not look at pages. The process is not stopped, and no code is
injected. Several processes are printed as a table.

Examples:
  tsmalloc stats 4711
  tsmalloc stats --json --interval 10 4711
  tsmalloc stats --prometheus --cgroup system.slice/server.service

  --json              A line of JSON per process, in bytes.
  --prometheus        The text format of Prometheus, in bytes; with several processes, labelled.
  --interval SECONDS  Repeat (at least 0.0001 s apart) until the process ends, or Ctrl-C.
  --count N           Repeat N times, 1 s apart without --interval.
)" TSMALLOC_HELP_OF_PROCESSES R"(
Permissions and exit status: as for explain. A process without tsmalloc has no stats.
)";

constexpr char one_format[] = "only one output format at a time";

int print_map_text(const Report& report, const StrandedSites& sites, const List<MapPiece>& map) {
  const Account& account = report.account;
  const bool is_terminal = isatty(STDOUT_FILENO) != 0;
  constexpr std::size_t rows = 16;
  std::printf("Process %d (%s): %.1f MiB resident of %.1f MiB that tsmalloc has mapped\n\n",
              account.pid, account.command, mib(account.engine()), mib(account.mapped));
  print_map(account, map, is_terminal ? terminal_columns() : 80, rows,
            is_terminal && !forbids_colours(), "\n");
  print_slabs(map);
  print_sites(account.pid, sites);
  return std::fflush(stdout) == 0 ? 0 : errno;
}

// As the engine measures itself, from its tables (core/view.cpp).
HeapMeasures measures_of(const Account& account) {
  const std::size_t mapped_bytes = account.mapped;
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
  if (!take_account(process, &image, AccountBasis::tables, account)) return false;
  expect_written(write_stats(measures_of(account), STDOUT_FILENO, format));
  return true;
}

// Through another of its threads, if the one used so far has ended.
bool reopen_and_print(pid_t pid, int format) {
  Process process{pid};
  EngineImage image;
  return process.open(Process::Residency::none) == 0 &&
         image.find(process) == EngineStatus::engine && print_stats(process, image, format);
}

// ---- of several processes ----

constexpr Column columns_of_stats[] = {
    {"mapped", [](const Account& a) { return a.mapped; }, true},
    {"program", [](const Account& a) { return a.program(); }, true},
    {"free", [](const Account& a) { return a.free(); }, true},
    {"returned",
     [](const Account& a) { return a.mapped - std::min(a.mapped, a.program() + a.free()); }, true},
    {"tables", [](const Account& a) { return a.tables; }, true},
};

// The output of write_stats().
struct StatsText {
  char text[max_stats_text];
  const char* at;  // the beginning of the next line
};

void fill_text(StatsText& text, const Account& account, int format) {
  const int file = memfd_create("stats", MFD_CLOEXEC);
  ssize_t length = -1;
  if (file >= 0 && write_stats(measures_of(account), file, format) == 0)
    length = pread(file, text.text, sizeof text.text - 1, 0);
  if (length < 0) fail_internal("a buffer for what a process has", errno);
  close(file);
  text.text[length] = '\0';
}

// Prints the header of each metric once, followed by every process's values: the lines of all
// processes are alike.
void print_prometheus_of(const SharedResults<Account>& accounts) {
  List<StatsText> texts;
  for (const Account& account : accounts) {
    if (account.pid != 0) fill_text(texts.add({}), account, TSMALLOC_PROMETHEUS);
  }
  for (StatsText& each : texts) each.at = each.text;
  while (!texts.is_empty() && *texts[0].at != '\0') {
    const Account* account = accounts.begin();
    for (StatsText& each : texts) {
      const auto length = static_cast<int>(std::strcspn(each.at, "\n"));
      const auto name = static_cast<int>(std::strcspn(each.at, "{ "));
      while (account->pid == 0) ++account;
      if (*each.at == '#') {
        if (&each == texts.begin()) std::printf("%.*s\n", length, each.at);
      } else {
        const bool has_labels = each.at[name] == '{';
        std::printf("%.*s{", name, each.at);
        print_labels(*account);
        std::printf("%s%.*s\n", has_labels ? "," : "}", length - name - has_labels,
                    each.at + name + has_labels);
      }
      each.at += length + 1;
      ++account;
    }
  }
}

int print_stats_of_all(const Processes& processes, int format) {
  List<pid_t> pids;
  processes.list_or_fail(pids);
  SharedResults<Account> accounts{pids.count()};
  const int status = Children{}.run(pids, [&](pid_t pid, std::size_t i) {
    static Account account;
    Process process{pid};
    EngineImage image;
    open_engine(process, Process::Residency::none, image);
    expect_readable(process, take_account(process, &image, AccountBasis::tables, account));
    accounts[i] = account;
    return 0;
  });
  Account sum;
  sum.has_engine = true;
  std::size_t count = 0;
  if (format == TSMALLOC_TEXT) print_head(columns_of_stats);
  if (format == TSMALLOC_PROMETHEUS) print_prometheus_of(accounts);
  for (const Account& account : accounts) {
    if (account.pid == 0) continue;
    ++count;
    sum.mapped += account.mapped;
    for (const auto part : Account::parts_of_engine) sum.*part += account.*part;
    if (format == TSMALLOC_TEXT) print_row(columns_of_stats, account);
    if (format != TSMALLOC_JSON) continue;
    static StatsText text;
    fill_text(text, account, format);
    std::printf("{\"pid\":%d,%s", account.pid, text.text + 1);
  }
  ts::format(sum.command, sizeof sum.command, "%zu process%s", count, count == 1 ? "" : "es");
  if (format == TSMALLOC_TEXT) print_row(columns_of_stats, sum);
  expect_written(std::fflush(stdout) == 0 ? 0 : errno);
  return status;
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
      if (format != TSMALLOC_TEXT) line.fail_at(option, one_format);
      format = is("--json") ? TSMALLOC_JSON : TSMALLOC_PROMETHEUS;
    } else {
      line.fail_at_option(option);
    }
  }
  const bool is_once = seconds == 0 && count == 0;
  const auto interval = static_cast<Nanoseconds>((seconds != 0 ? seconds : 1) * ns_per_second);
  Nanoseconds next = now_ns();
  const auto wait = [&] {
    // Missed samples are left out.
    next = std::max(next + interval, now_ns());
    const timespec at{next / ns_per_second, next % ns_per_second};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) != 0) continue;
  };
  if (!line.processes().is_single()) {
    int status = print_stats_of_all(line.processes(), format);
    for (double printed = 1; !is_once && (count == 0 || printed < count); ++printed) {
      wait();
      status = print_stats_of_all(line.processes(), format);
    }
    return status;
  }
  Process process{line.pid()};
  EngineImage image;
  open_engine(process, Process::Residency::none, image);
  expect_readable(process, print_stats(process, image, format));
  for (double printed = 1; !is_once && (count == 0 || printed < count); ++printed) {
    wait();
    if (image.reload(process) == EngineStatus::engine && print_stats(process, image, format))
      continue;
    if (reopen_and_print(process.pid(), format)) continue;
    std::fprintf(stderr, "tsmalloc: process %d has ended, or now runs another program\n",
                 process.pid());
    break;
  }
  return 0;
}

int explain(char** arguments) {
  enum class Form : std::uint8_t { text, json, prometheus } form = Form::text;
  bool has_map = false;
  const char* page = nullptr;
  CommandLine line{"explain", help_of_explain, arguments};
  while (const char* const option = line.next_option()) {
    const auto is = [option](const char* name) { return std::strcmp(option, name) == 0; };
    if (is("--json") || is("--prometheus")) {
      if (form != Form::text) line.fail_at(option, one_format);
      form = is("--json") ? Form::json : Form::prometheus;
    } else if (is("--map")) {
      has_map = true;
    } else if (is("--html")) {
      page = line.next_word(option);
    } else {
      line.fail_at_option(option);
    }
  }
  has_map |= page != nullptr;
  if (has_map && form == Form::prometheus) line.fail_at("--prometheus", "it has no map");
  static Report report;
  static StrandedSites sites;
  if (!line.processes().is_single() && !has_map) {
    List<pid_t> pids;
    line.processes().list_or_fail(pids);
    Reports reports{pids, line.processes().cgroup_anonymous(), form == Form::json};
    expect_written(form == Form::text   ? reports.print_table("\n")
                   : form == Form::json ? reports.print_sum_as_json()
                                        : print_prometheus(reports.begin(), reports.end()));
    return reports.status();
  }
  static List<MapPiece> map;
  take_report(line.pid(), Process::Residency::read, report, sites, has_map ? &map : nullptr);
  if (has_map && !report.account.has_engine)
    fail(exit_missing, "process %d (%s) %s", report.account.pid, report.account.command,
         report.reason.text);
  if (page != nullptr) {
    if (const int error = write_map_page(page, report, sites, map); error != 0)
      fail(exit_usage, "%s: %s; choose another with --html FILE", page,
           os::describe_error(error).text);
    std::printf("Process %d (%s): %s\n", report.account.pid, report.account.command, page);
    expect_written(std::fflush(stdout) == 0 ? 0 : errno);
  } else if (form == Form::json) {
    expect_written(print_json(report, sites, has_map ? &map : nullptr));
  } else if (form == Form::prometheus) {
    expect_written(print_prometheus(&report, &report + 1));
  } else {
    expect_written(has_map ? print_map_text(report, sites, map) : print_text(report, sites));
  }
  return 0;
}

}  // namespace ts
