// An account (account.h) in words, as JSON and for Prometheus.
#pragma once

#include "outside/account.h"
#include "outside/pinned_sites.h"

namespace ts {

// What the memory is for.
enum class Use : std::uint8_t { program, free, tables, outside };

struct Part {
  Use use;
  const char* key;  // of JSON, and a label
  std::size_t Account::*bytes;
  const char* meaning;
};

inline constexpr Part parts[] = {
    {Use::program, "small_blocks", &Account::small, "the program's blocks, up to 64 KiB"},
    {Use::program, "large_blocks", &Account::large, "the program's larger blocks"},
    {Use::free, "bins", &Account::bins, "free, in the threads' cache bins and batches"},
    {Use::free, "waiting", &Account::waiting,
     "freed by other threads, until the owner collects it"},
    {Use::free, "free_in_slabs", &Account::in_slabs, "free, in slabs beside blocks in use"},
    {Use::free, "ended_threads", &Account::ended, "free, in slabs and bins of threads that ended"},
    {Use::free, "free_pages", &Account::pages, "free pages, kept to be used again"},
    {Use::free, "huge_page_ends", &Account::ends, "ends of huge pages, which no block has touched"},
    {Use::tables, "tables", &Account::tables, "the allocator's tables"},
    {Use::outside, "files", &Account::files, "programs, libraries and other files"},
    {Use::outside, "stacks", &Account::stacks, "stacks of threads that wait"},
    {Use::outside, "other_mappings", &Account::others, "other mappings of the program"},
};

constexpr double mib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// To standard output. They return 0, or the number of the first error in writing.
// Without sites, nothing is said of them.
int print_text(const Process& process, const Account& account, const PinnedSites& sites);
int print_json(const Process& process, const Account& account, const PinnedSites& sites);
int print_prometheus(const Process& process, const Account& account, const PinnedSites& sites);

}  // namespace ts
