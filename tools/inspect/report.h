// Prints accounts (account.h) as text, as JSON and for Prometheus, for one process or several.
#pragma once

#include <unistd.h>

#include <cstdio>

#include "inspect/command_line.h"
#include "inspect/stranded_sites.h"

namespace ts {

// What memory is used for.
enum class Use : std::uint8_t { program, free, tables, outside };

struct Part {
  Use use;
  const char* key;  // in JSON, and as a label
  std::size_t Account::*bytes;
  const char* meaning;
};

inline constexpr Part parts[] = {
    {Use::program, "small_blocks", &Account::small, "the program's blocks of up to 64 KiB"},
    {Use::program, "large_blocks", &Account::large, "the program's larger blocks"},
    {Use::free, "bins", &Account::bins, "free, in the threads' cache bins and batches"},
    {Use::free, "waiting", &Account::waiting,
     "freed by other threads, until the owner collects it"},
    {Use::free, "free_in_slabs", &Account::in_slabs, "free, in slabs beside blocks in use"},
    {Use::free, "ended_threads", &Account::ended, "free, in slabs and bins of ended threads"},
    {Use::free, "free_pages", &Account::pages, "free pages, kept for reuse"},
    {Use::free, "huge_page_ends", &Account::ends, "unused tails of huge pages"},
    {Use::tables, "tables", &Account::tables, "the allocator's tables"},
    {Use::outside, "heap", &Account::heap, "the brk() heap, used by the C library's malloc"},
    {Use::outside, "files", &Account::files, "programs, libraries and other files"},
    {Use::outside, "stacks", &Account::stacks, "stacks of waiting threads"},
    {Use::outside, "shared", &Account::shared, "shared memory"},
    {Use::outside, "other_mappings", &Account::others, "other mappings of the program"},
};

constexpr double mib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// What is reported for a process.
struct Report {
  Account account;
  bool has_shares = false;
  Account shares;
  Reason reason{};  // why it has no engine, if so
};

// Uses only the kernel's figures if the process has no engine. Ends this process if it cannot be
// inspected. `map` may be null.
void take_report(pid_t pid, Process::Residency residency, Report& report, StrandedSites& sites,
                 List<MapPiece>* map = nullptr);

// Print to standard output, and return 0 or the first write error. Without sites, they print
// nothing about them.
int print_text(const Report& report, const StrandedSites& sites);
// With each piece of a map, if there is one, to any file.
int print_json(const Report& report, const StrandedSites& sites,
               const List<MapPiece>* map = nullptr, int descriptor = STDOUT_FILENO);
int print_prometheus(const Report* begin, const Report* end);
// What a heap profile's samples show.
void print_sites(pid_t pid, const StrandedSites& sites);

// A column of a table with a row for each process.
struct Column {
  const char* head;
  std::size_t (*bytes)(const Account&);
  bool is_of_engine;
};
// For a process, or for the sum, which has no number.
template <std::size_t Count>
void print_row(const Column (&columns)[Count], const Account& account, const char* end = "\n") {
  account.pid != 0 ? std::printf("%8d", account.pid) : std::printf("%8s", "sum");
  for (const Column& column : columns) {
    if (column.is_of_engine && !account.has_engine) {
      std::printf(" %8s", "-");
    } else {
      std::printf(" %8.1f", mib(column.bytes(account)));
    }
  }
  std::printf("  %s%s", account.command, end);
}
template <std::size_t Count>
void print_head(const Column (&columns)[Count], const char* end = "\n") {
  std::printf("%8s", "MiB  PID");
  for (const Column& column : columns) std::printf(" %8s", column.head);
  std::printf("%s", end);
}
// The process as Prometheus labels.
void print_labels(const Account& account);

// Accounts of several processes, each taken in a child of this one.
class Reports {
 public:
  // With `prints_json`, each child prints its line. `of_cgroup` is as in Processes.
  Reports(const List<pid_t>& pids, std::int64_t of_cgroup, bool prints_json, bool is_quiet = false);

  // Largest first.
  const Report* begin() { return results_.begin(); }
  const Report* end() { return results_.begin() + count_; }
  // The sum of the shares.
  const Account& sum() const { return sum_; }
  int status() const { return status_; }

  int print_table(const char* end_of_line);
  int print_sum_as_json() const;

 private:
  SharedResults<Report> results_;
  std::size_t count_ = 0;
  std::size_t without_engine_ = 0;
  Account sum_;
  std::int64_t of_cgroup_;
  int status_ = 0;
};

}  // namespace ts
