// The three formats of an account; see report.h.
#include "inspect/report.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>

#include "common/json_line.h"
#include "common/system.h"
#include "inspect/heap_map.h"

namespace ts {
namespace {

double percent(std::size_t part, std::size_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

// Damaged memory may contain any numbers.
std::int64_t whole(double bytes) {
  constexpr double maximum = 1e18;
  return bytes < maximum ? static_cast<std::int64_t>(bytes) : static_cast<std::int64_t>(maximum);
}

std::size_t free_in(const Account::Class& c) { return c.slab_bytes - c.used_bytes; }

// The classes with the most free bytes.
void print_classes(const Account& account) {
  constexpr std::size_t shown = 3;
  const std::size_t all = account.in_slabs + account.ended;
  if (all < std::size_t{1} << 20) return;
  unsigned order[engine::class_count];
  for (unsigned c = 0; c < engine::class_count; ++c) order[c] = c;
  std::sort(std::begin(order), std::end(order), [&](unsigned a, unsigned b) {
    return free_in(account.classes[a]) > free_in(account.classes[b]);
  });
  std::printf("\nFree memory in slabs:\n");
  for (std::size_t i = 0; i < shown; ++i) {
    const Account::Class& c = account.classes[order[i]];
    if (free_in(c) == 0) break;
    std::printf("%12.1f %6.1f%%  beside blocks of %u bytes, whose slabs are %.0f%% full\n",
                mib(free_in(c)), percent(free_in(c), all),
                engine::size_classes[order[i]].block_bytes, percent(c.used_bytes, c.slab_bytes));
  }
}

// A metric in Prometheus' text format: a type line, followed by a line for each value. If
// ts_stats_write() uses the same name, the meaning must be the same, or a collector of both rejects
// one.
void begin_metric(const char* name, const char* help) {
  std::printf("# HELP tsmalloc_%s %s\n# TYPE tsmalloc_%s gauge\n", name, help, name);
}

constexpr std::int64_t number(std::size_t n) { return static_cast<std::int64_t>(n); }

void add_parts(JsonLine& line, const char* name, const Account& account) {
  line.begin_object(name);
  for (const Part& part : parts) line.add(part.key, number(account.*part.bytes));
  line.end_object();
}

void add_shares(JsonLine& line, const Account& shares) {
  line.add("pss_bytes", number(shares.resident));
  line.add("pss_anon_bytes", number(shares.anonymous));
  add_parts(line, "pss", shares);
}

int flush_output() { return std::fflush(stdout) == 0 ? 0 : errno; }

}  // namespace

void print_sites(pid_t pid, const StrandedSites& sites) {
  const auto print = [](const StrandedBytes& room) {
    std::printf("%12.1f ±%.0f%%  ", room.bytes / (1 << 20), 100 * room.error() / room.bytes);
  };
  if (sites.all().bytes < 1 << 20) return;
  std::printf("\nBlocks that these places allocated keep free room in slabs (by samples; 95%%):\n");
  constexpr std::ptrdiff_t shown = 3;
  for (const StrandedSites::Site* site = sites.begin();
       site != sites.end() && site - sites.begin() < shown; ++site) {
    print(site->room);
    std::printf("%s+0x%llx\n", site->module, static_cast<unsigned long long>(site->offset));
  }
  print(sites.all());
  std::printf(
      "in all. Functions and lines: tsmalloc profile %d, then\n"
      "                     tsmalloc profile show --type pinned tsmalloc.%d.pb\n",
      pid, pid);
}

int print_text(const Report& report, const StrandedSites& sites) {
  const Account& account = report.account;
  std::printf("Process %d (%s): %.1f MiB resident (peak %.1f)", account.pid, account.command,
              mib(account.resident), mib(account.peak));
  if (account.has_engine) std::printf(", %.1f MiB of it tsmalloc's", mib(account.engine()));
  std::printf("\n\n         MiB  of all\n");
  for (const Part& part : parts) {
    const std::size_t bytes = account.*part.bytes;
    if (!account.has_engine && part.use != Use::outside) continue;
    std::printf("%12.1f %6.1f%%  %s\n", mib(bytes), percent(bytes, account.resident), part.meaning);
  }
  if (!account.has_engine) {
    std::printf(
        "\nProcess %d (%s) %s.\nUnder tsmalloc, this would show which memory the program's blocks "
        "hold,\nwhich is free and why it stays, and what purge returns.\n",
        account.pid, account.command, report.reason.text);
    return flush_output();
  }
  print_classes(account);
  print_sites(account.pid, sites);
  std::printf("\n%zu thread%s; %zu heap%s, of which %zu of ended threads; %zu slab%s; ",
              account.threads, plural(account.threads), account.heaps, plural(account.heaps),
              account.ended_heaps, account.slabs, plural(account.slabs));
  std::printf("%zu large block%s\n", account.large_blocks, plural(account.large_blocks));
  if (account.limit != 0)
    std::printf("\nFree memory is purged at once above %.1f MiB\n", mib(account.limit));
  if (account.hard_limit != 0)
    std::printf("%sHard limit: %.1f MiB\n", account.limit != 0 ? "" : "\n",
                mib(account.hard_limit));
  if (account.pages >= std::size_t{1} << 20)
    std::printf("\nTo return %.1f MiB: tsmalloc purge %d\n", mib(account.pages), account.pid);
  if (account.unclear != 0)
    std::printf("%zu page%s changed owners meanwhile and count%s as other mappings\n",
                account.unclear, plural(account.unclear), account.unclear == 1 ? "s" : "");
  return flush_output();
}

int print_json(const Report& report, const StrandedSites& sites, const List<MapPiece>* map,
               int descriptor) {
  const Account& account = report.account;
  JsonLine line{descriptor};
  line.begin_object();
  line.add_text("schema", map != nullptr ? "tsmalloc-map/1" : "tsmalloc-explain/1");
  line.add("pid", account.pid);
  line.add_text("command", account.command);
  line.add_bool("engine", account.has_engine);
  if (!account.has_engine) line.add_text("reason", report.reason.text);
  line.add("resident_bytes", number(account.resident));
  line.add("peak_resident_bytes", number(account.peak));
  add_parts(line, "resident", account);
  if (report.has_shares) add_shares(line, report.shares);
  line.add("live_bytes", number(account.live));
  line.add("threads", number(account.threads));
  line.add("heaps", number(account.heaps));
  line.add("ended_heaps", number(account.ended_heaps));
  line.add("slabs", number(account.slabs));
  line.add("large_block_count", number(account.large_blocks));
  line.add("unclear_pages", number(account.unclear));
  line.add("limit_bytes", number(account.limit));
  line.add("hard_limit_bytes", number(account.hard_limit));
  line.begin_list("classes");
  for (unsigned c = 1; c < engine::class_count; ++c) {
    if (account.classes[c].slab_bytes == 0) continue;
    line.begin_object();
    line.add("block_bytes", number(engine::size_classes[c].block_bytes));
    line.add("resident_bytes", number(account.classes[c].slab_bytes));
    line.add("used_bytes", number(account.classes[c].used_bytes));
    line.end_object();
  }
  line.end_list();
  line.begin_list("pinned_by");
  for (const StrandedSites::Site& site : sites) {
    line.begin_object();
    line.add_text("module", site.module);
    line.add("offset", static_cast<std::int64_t>(site.offset));
    line.add("bytes", whole(site.room.bytes));
    line.add("error_bytes", whole(site.room.error()));
    line.end_object();
  }
  line.end_list();
  if (map != nullptr) add_map(line, account, *map, sites);
  line.end_object();
  return line.finish();
}

// All processes' values of a metric must follow a single header, or a collector rejects them.
int print_prometheus(const Report* begin, const Report* end) {
  const auto print = [](const Account& account, const char* name, const char* part,
                        std::size_t value) {
    std::printf("tsmalloc_%s{", name);
    print_labels(account);
    if (part != nullptr) std::printf(",part=\"%s\"", part);
    std::printf("} %zu\n", value);
  };
  const auto print_parts = [&](const char* name, const char* help, Account Report::*which) {
    begin_metric(name, help);
    for (const Report* report = begin; report != end; ++report) {
      for (const Part& part : parts)
        print(report->*which, name, part.key, report->*which.*part.bytes);
    }
  };
  if (begin == end) return flush_output();
  print_parts("resident_bytes", "Resident memory of the process by what it is for.",
              &Report::account);
  if (begin->has_shares)
    print_parts("pss_bytes", "Proportional set size of the process by what it is for.",
                &Report::shares);
  constexpr struct {
    const char* name;
    const char* help;
    std::size_t Account::*value;
  } gauges[] = {
      {"peak_resident_bytes", "The most resident memory so far.", &Account::peak},
      {"live_bytes", "Blocks of the program, resident or not.", &Account::live},
      {"threads", "Threads of the process.", &Account::threads},
      {"heaps", "heaps, one for each thread that allocated", &Account::heaps},
      {"ended_heaps", "of those, heaps of ended threads", &Account::ended_heaps},
      {"large_blocks", "Blocks of more than 64 KiB.", &Account::large_blocks},
      {"limit_bytes", "free memory is purged before the heap passes this; 0: none",
       &Account::limit},
      {"hard_limit_bytes", "limit beyond which malloc fails; 0: none", &Account::hard_limit},
      {"pinned_bytes", "Free room beside sampled blocks: an estimate, 0 without samples.",
       &Account::pinned},
  };
  for (const auto& gauge : gauges) {
    begin_metric(gauge.name, gauge.help);
    for (const Report* report = begin; report != end; ++report)
      print(report->account, gauge.name, nullptr, report->account.*gauge.value);
  }
  return flush_output();
}

// ---- several processes ----

void take_report(pid_t pid, Process::Residency residency, Report& report, StrandedSites& sites,
                 List<MapPiece>* map) {
  Process process{pid};
  EngineImage image;
  expect_open(process, process.open(residency));
  const EngineStatus found = image.find(process);
  if (found == EngineStatus::unreadable) expect_engine(process, found);
  const bool has_engine = found == EngineStatus::engine;
  report.has_shares = residency == Process::Residency::shares;
  report.reason = why_without_engine(process, found);
  expect_readable(
      process, take_account(process, has_engine ? &image : nullptr, AccountBasis::kernel,
                            report.account, {report.has_shares ? &report.shares : nullptr, map}));
  if (!has_engine) return;
  sites.read(process, image);
  report.account.pinned = static_cast<std::size_t>(whole(sites.all().bytes));
}

namespace {

constexpr Column columns_of_shares[] = {
    {"PSS", [](const Account& a) { return a.resident; }, false},
    {"anon", [](const Account& a) { return a.anonymous; }, false},
    {"program", [](const Account& a) { return a.program(); }, true},
    {"free", [](const Account& a) { return a.free(); }, true},
    {"tables", [](const Account& a) { return a.tables; }, true},
    {"heap", [](const Account& a) { return a.heap; }, false},
    {"stacks", [](const Account& a) { return a.stacks; }, false},
    {"files", [](const Account& a) { return a.files; }, false},
    {"shared", [](const Account& a) { return a.shared; }, false},
    {"other", [](const Account& a) { return a.others; }, false},
};

}  // namespace

Reports::Reports(const List<pid_t>& pids, std::int64_t of_cgroup, bool prints_json, bool is_quiet)
    : results_{pids.count()}, of_cgroup_{of_cgroup} {
  status_ = Children{false, is_quiet}.run(pids, [&](pid_t pid, std::size_t i) {
    static Report report;
    static StrandedSites sites;
    take_report(pid, Process::Residency::shares, report, sites);
    results_[i] = report;
    return prints_json && print_json(report, sites) != 0 ? exit_usage : 0;
  });
  Report* const end = std::remove_if(results_.begin(), results_.end(),
                                     [](const Report& each) { return each.account.pid == 0; });
  std::sort(results_.begin(), end,
            [](const Report& a, const Report& b) { return a.shares.resident > b.shares.resident; });
  count_ = static_cast<std::size_t>(end - results_.begin());
  for (const Report& each : *this) {
    for (const Part& part : parts) sum_.*part.bytes += each.shares.*part.bytes;
    sum_.resident += each.shares.resident;
    sum_.anonymous += each.shares.anonymous;
    sum_.has_engine |= each.account.has_engine;
    without_engine_ += each.account.has_engine ? 0 : 1;
  }
}

void print_labels(const Account& account) {
  std::printf("pid=\"%d\",command=\"", account.pid);
  for (const char* at = account.command; *at != '\0'; ++at)
    std::printf("%s%c", *at == '"' || *at == '\\' ? "\\" : "", *at);
  std::printf("\"");
}

int Reports::print_table(const char* end_of_line) {
  print_head(columns_of_shares, end_of_line);
  for (const Report& each : *this) print_row(columns_of_shares, each.shares, end_of_line);
  format(sum_.command, sizeof sum_.command, "%zu process%s", count_, count_ == 1 ? "" : "es");
  print_row(columns_of_shares, sum_, end_of_line);
  if (of_cgroup_ >= 0)
    std::printf("%8s %8s %8.1f  by memory.stat of the control group%s", "", "",
                mib(static_cast<std::size_t>(of_cgroup_)), end_of_line);
  std::printf(
      "%sBy proportional set size (PSS): a page that N processes share counts 1/N in each.%s",
      end_of_line, end_of_line);
  if (without_engine_ != 0)
    std::printf(
        "%zu without tsmalloc: what malloc holds there is in heap and other. Under tsmalloc, this%s"
        "would show how much of it the program uses, how much is free, and why it stays.%s",
        without_engine_, end_of_line, end_of_line);
  return flush_output();
}

int Reports::print_sum_as_json() const {
  JsonLine line{STDOUT_FILENO};
  line.begin_object();
  line.add_text("schema", "tsmalloc-sum/1");
  line.add("processes", number(count_));
  line.add("without_engine", number(without_engine_));
  add_shares(line, sum_);
  line.add_unless_negative("cgroup_anon_bytes", of_cgroup_);
  line.end_object();
  return line.finish();
}

}  // namespace ts
