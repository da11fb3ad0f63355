// An account (account.h) in words, as JSON and for Prometheus.
#pragma once

#include "outside/account.h"

namespace ts {

struct Part {
  const char* key;  // of JSON, and a label
  std::size_t Account::*bytes;
  const char* meaning;
};

inline constexpr Part parts[] = {
    {"small_blocks", &Account::small, "the program's blocks, up to 32 KiB"},
    {"large_blocks", &Account::large, "the program's larger blocks"},
    {"bins", &Account::bins, "free, in the threads' cache bins and batches"},
    {"waiting", &Account::waiting, "freed by other threads, until the owner collects it"},
    {"free_in_slabs", &Account::in_slabs, "free, in slabs beside blocks in use"},
    {"ended_threads", &Account::ended, "free, in slabs and bins of threads that ended"},
    {"free_pages", &Account::pages, "free pages, kept to be used again"},
    {"tables", &Account::tables, "the allocator's tables"},
    {"files", &Account::files, "programs, libraries and other files"},
    {"stacks", &Account::stacks, "stacks of threads that wait"},
    {"other_mappings", &Account::others, "other mappings of the program"},
};

constexpr double mib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// To standard output. They return 0, or the number of the first error in writing.
int print_text(const Process& process, const Account& account);
int print_json(const Process& process, const Account& account);
int print_prometheus(const Process& process, const Account& account);

}  // namespace ts
