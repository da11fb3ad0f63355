// The three forms of an account; see report.h.
#include "outside/report.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>

#include "common/json_line.h"

namespace ts {
namespace {

double percent(std::size_t part, std::size_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

// Damaged memory may have any numbers.
std::int64_t whole(double bytes) {
  constexpr double most = 1e18;
  return bytes < most ? static_cast<std::int64_t>(bytes) : static_cast<std::int64_t>(most);
}

std::size_t free_in(const Account::Class& c) { return c.slab_bytes - c.used_bytes; }

// The classes with the most free room.
void print_classes(const Account& account) {
  constexpr std::size_t shown = 3;
  const std::size_t all = account.in_slabs + account.ended;
  if (all < std::size_t{1} << 20) return;
  unsigned order[engine::class_count];
  for (unsigned c = 0; c < engine::class_count; ++c) order[c] = c;
  std::sort(std::begin(order), std::end(order), [&](unsigned a, unsigned b) {
    return free_in(account.classes[a]) > free_in(account.classes[b]);
  });
  std::printf("\nOf what is free in slabs:\n");
  for (std::size_t i = 0; i < shown; ++i) {
    const Account::Class& c = account.classes[order[i]];
    if (free_in(c) == 0) break;
    std::printf("%12.1f %5.1f %%  beside blocks of %u bytes, whose slabs are used to %.0f %%\n",
                mib(free_in(c)), percent(free_in(c), all),
                engine::size_classes[order[i]].block_bytes, percent(c.used_bytes, c.slab_bytes));
  }
}

// What the heap profile knows of it.
void print_sites(const Process& process, const PinnedSites& sites) {
  const auto print = [](const PinnedRoom& room) {
    std::printf("%12.1f ±%.0f %%  ", room.bytes / (1 << 20), 100 * room.error() / room.bytes);
  };
  if (sites.all().bytes < 1 << 20) return;
  std::printf(
      "\nBlocks that these places allocated keep free room in slabs (by samples; 95 %%):\n");
  constexpr std::ptrdiff_t shown = 3;
  for (const PinnedSites::Site* site = sites.begin();
       site != sites.end() && site - sites.begin() < shown; ++site) {
    print(site->room);
    std::printf("%s+0x%llx\n", site->module, static_cast<unsigned long long>(site->offset));
  }
  print(sites.all());
  std::printf(
      "in all. Functions and lines: tsmalloc profile %d, then\n"
      "                     tsmalloc profile show --type pinned tsmalloc.%d.pb\n",
      process.pid(), process.pid());
}

// A name of Prometheus' text format: a line of type, and one for each value behind it. Its meaning is
// that of ts_stats_write() where that has the same name, or a collector of both refuses one.
void begin_metric(const char* name, const char* help) {
  std::printf("# HELP tsmalloc_%s %s\n# TYPE tsmalloc_%s gauge\n", name, help, name);
}

int flush_output() { return std::fflush(stdout) == 0 ? 0 : errno; }

}  // namespace

int print_text(const Process& process, const Account& account, const PinnedSites& sites) {
  std::printf("Process %d (%s): %.1f MiB resident (peak %.1f), %.1f MiB of them tsmalloc's\n\n",
              process.pid(), process.command(), mib(account.resident), mib(account.peak),
              mib(account.engine()));
  std::printf("         MiB  of all\n");
  for (const Part& part : parts) {
    const std::size_t bytes = account.*part.bytes;
    std::printf("%12.1f %5.1f %%  %s\n", mib(bytes), percent(bytes, account.resident),
                part.meaning);
  }
  print_classes(account);
  print_sites(process, sites);
  std::printf("\n%zu threads; %zu heaps, of which %zu are of threads that ended; %zu slabs; ",
              process.threads(), account.heaps, account.ended_heaps, account.slabs);
  std::printf("%zu large blocks\n", account.large_blocks);
  if (account.limit != 0)
    std::printf("\nFree memory goes back at once beyond %.1f MiB\n", mib(account.limit));
  if (account.hard_limit != 0)
    std::printf("%sNo memory beyond %.1f MiB\n", account.limit != 0 ? "" : "\n",
                mib(account.hard_limit));
  if (account.pages >= std::size_t{1} << 20)
    std::printf("\nGive %.1f MiB back: tsmalloc purge %d\n", mib(account.pages), process.pid());
  if (account.unclear != 0)
    std::printf("%zu pages changed hands meanwhile and count as other mappings\n", account.unclear);
  return flush_output();
}

int print_json(const Process& process, const Account& account, const PinnedSites& sites) {
  const auto number = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  JsonLine line{STDOUT_FILENO};
  line.begin_object();
  line.add_text("schema", "tsmalloc-explain/1");
  line.add("pid", process.pid());
  line.add_text("command", process.command());
  line.add("resident_bytes", number(account.resident));
  line.add("peak_resident_bytes", number(account.peak));
  line.begin_object("resident");
  for (const Part& part : parts) line.add(part.key, number(account.*part.bytes));
  line.end_object();
  line.add("live_bytes", number(account.live));
  line.add("threads", number(process.threads()));
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
  for (const PinnedSites::Site& site : sites) {
    line.begin_object();
    line.add_text("module", site.module);
    line.add("offset", static_cast<std::int64_t>(site.offset));
    line.add("bytes", whole(site.room.bytes));
    line.add("error_bytes", whole(site.room.error()));
    line.end_object();
  }
  line.end_list();
  line.end_object();
  return line.finish();
}

int print_prometheus(const Process& process, const Account& account, const PinnedSites& sites) {
  begin_metric("resident_bytes", "Resident memory of the process by what it is for.");
  for (const Part& part : parts)
    std::printf("tsmalloc_resident_bytes{pid=\"%d\",part=\"%s\"} %zu\n", process.pid(), part.key,
                account.*part.bytes);
  const struct {
    const char* name;
    const char* help;
    std::size_t value;
  } gauges[] = {
      {"peak_resident_bytes", "The most resident memory so far.", account.peak},
      {"live_bytes", "Blocks of the program, resident or not.", account.live},
      {"threads", "Threads of the process.", process.threads()},
      {"heaps", "heaps, one for each thread that allocated", account.heaps},
      {"ended_heaps", "of those, heaps of threads that ended", account.ended_heaps},
      {"large_blocks", "Blocks of more than 64 KiB.", account.large_blocks},
      {"limit_bytes", "limit beyond which free memory goes back; 0: none yet", account.limit},
      {"hard_limit_bytes", "limit beyond which malloc fails; 0: none", account.hard_limit},
      {"pinned_bytes", "Free room beside sampled blocks: an estimate, 0 without samples.",
       static_cast<std::size_t>(whole(sites.all().bytes))},
  };
  for (const auto& gauge : gauges) {
    begin_metric(gauge.name, gauge.help);
    std::printf("tsmalloc_%s{pid=\"%d\"} %zu\n", gauge.name, process.pid(), gauge.value);
  }
  return flush_output();
}

}  // namespace ts
