// Making and replacing the record, and counting; see call.h.
#include "count/call.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "interpose/process_file.h"

namespace ts {
namespace {

// Until there is a file, and for good where there is none.
constinit CountRecord record_in_memory{};
constinit std::atomic<CountRecord*> record{&record_in_memory};

constinit thread_local std::uint64_t thread_tally[counter_count]{};

void count(std::size_t counter, std::uint64_t amount) {
  thread_tally[counter] += amount;
  CountRecord* const current = record.load(std::memory_order_relaxed);
  current->counters[counter].fetch_add(amount, std::memory_order_relaxed);
}

void fill(CountRecord& fresh, const CountRecord* earlier) {
  std::memcpy(fresh.magic, "TSCOUNT2", sizeof fresh.magic);
  fresh.pid = getpid();
  fresh.parent_pid = getppid();
  if (earlier != nullptr) {
    for (std::size_t i = 0; i < counter_count; ++i) fresh.counters[i] = earlier->counters[i].load();
    std::memcpy(fresh.deep_bound, earlier->deep_bound, sizeof fresh.deep_bound);
  }
  name_program(fresh.executable, sizeof fresh.executable);
  name_provider(fresh.provider, sizeof fresh.provider);
}

// At the program's first call, or a forked child's.
void start_record_slow() {
  const int saved_errno = errno;
  if (const Begin begin = begin_process("TSMALLOC_COUNT_DIR"); begin != Begin::not_now) {
    CountRecord content{};
    fill(content, begin == Begin::first ? &record_in_memory : nullptr);
    auto* const fresh = static_cast<CountRecord*>(map_new_file("count", &content, sizeof content));
    CountRecord* const old =
        record.exchange(fresh != nullptr ? fresh : &record_in_memory, std::memory_order_acq_rel);
    if (old != &record_in_memory) munmap(old, sizeof *old);  // the parent's, still shared with it
  }
  errno = saved_errno;
}

// For a program that never allocates.
[[gnu::constructor]] void start_record_at_load() {
  if (!has_begun()) start_record_slow();
}

}  // namespace

void note_deep_binding(const char* library) {
  if (!has_begun()) start_record_slow();
  CountRecord& current = *record.load(std::memory_order_relaxed);
  const bool is_first = current.counters[deep_bindings_counter].fetch_add(1) == 0;
  if (is_first && current.deep_bound[0] == 0)
    ::memccpy(current.deep_bound, library, 0, sizeof current.deep_bound - 1);
}

Call::Call(Entry entry, void*, std::size_t, std::size_t) {
  if (!has_begun()) start_record_slow();
  count(static_cast<std::size_t>(entry), 1);
  std::memcpy(mine_, thread_tally, sizeof mine_);
}

void Call::finish(const void* block, std::size_t bytes) {
  CountRecord* const current = record.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < counter_count; ++i) {
    const std::uint64_t nested = thread_tally[i] - mine_[i];
    if (nested == 0) continue;
    current->counters[i].fetch_sub(nested, std::memory_order_relaxed);
    thread_tally[i] = mine_[i];
  }
  if (block != nullptr) count(bytes_requested_counter, bytes);
}

}  // namespace ts
