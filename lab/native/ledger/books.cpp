// Making the record, and the additions; see books.h.
#include "ledger/books.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/system.h"
#include "interpose/process_file.h"
#include "ledger/record.h"

namespace ts {
namespace {

// --- live bytes and blocks: now, at their peak, and over time ------------------------------------
//
// There is no clock: time is looked at when something is allocated or freed, which is the only time
// when something changes.

constexpr std::uint64_t first_interval_ns = 10'000;  // 1,000 points in the first 10 ms

// The memory of this process, and a fork's copy of it: what is live is inherited.
constinit std::atomic<std::uint64_t> live_bytes{0};
constinit std::atomic<std::uint64_t> live_blocks{0};

constinit std::atomic<std::uint64_t> begin_ns{0};

// The thread that takes a point holds the flag, and none waits for it: a point that another thread
// is taking at this moment serves as well. Guards interval_ns and the points.
constinit std::atomic_flag is_taking_point{};
constinit std::uint64_t interval_ns = first_interval_ns;
constinit std::atomic<std::uint64_t> next_point_ns{0};  // relaxed: only a hint outside of the flag

// Relaxed: each is a number of its own, and nothing else is read by it.
bool raise(AnyCounter& peak, std::uint64_t value) {
  std::uint64_t highest = peak.load(std::memory_order_relaxed);
  while (value > highest) {
    if (peak.compare_exchange_weak(highest, value, std::memory_order_relaxed)) return true;
  }
  return false;
}

void halve(LedgerRecord& record) {
  for (std::size_t i = 0; i < most_points / 2; ++i) {
    const CurvePoint& kept = record.curve[2 * i];
    record.curve[i].time_ns = kept.time_ns.load(std::memory_order_relaxed);
    record.curve[i].live_bytes = kept.live_bytes.load(std::memory_order_relaxed);
  }
  record.points.store(most_points / 2, std::memory_order_relaxed);
  interval_ns *= 2;
}

void take_point(LedgerRecord& record, std::uint64_t time_ns) {
  if (time_ns < next_point_ns.load(std::memory_order_relaxed)) return;
  // acquire: pairs with the release in clear(); the last one's points and interval are seen
  if (is_taking_point.test_and_set(std::memory_order_acquire)) return;
  if (time_ns >= next_point_ns.load(std::memory_order_relaxed)) {
    if (record.points.load(std::memory_order_relaxed) == most_points) halve(record);
    CurvePoint& point = record.curve[record.points.load(std::memory_order_relaxed)];
    point.time_ns.store(time_ns, std::memory_order_relaxed);
    point.live_bytes.store(live_bytes.load(std::memory_order_relaxed), std::memory_order_relaxed);
    record.points.fetch_add(1, std::memory_order_relaxed);
    next_point_ns.store(time_ns + interval_ns, std::memory_order_relaxed);
  }
  is_taking_point.clear(std::memory_order_release);
}

// The record begins: its curve is empty, and its peak is what is live. No other thread may be in
// here, except in a first record, when others may be counting already.
void begin_curve(LedgerRecord& record) {
  is_taking_point.clear(std::memory_order_relaxed);  // a fork may have left it set
  interval_ns = first_interval_ns;
  next_point_ns.store(0, std::memory_order_relaxed);
  begin_ns.store(unsigned_now_ns(), std::memory_order_relaxed);
  const std::uint64_t bytes = live_bytes.load(std::memory_order_relaxed);
  const std::uint64_t blocks = live_blocks.load(std::memory_order_relaxed);
  record.inherited_bytes.store(bytes, std::memory_order_relaxed);
  record.live_bytes.store(bytes, std::memory_order_relaxed);
  record.live_blocks.store(blocks, std::memory_order_relaxed);
  record.peak_live_bytes.store(bytes, std::memory_order_relaxed);
  record.peak_live_blocks.store(blocks, std::memory_order_relaxed);
  record.peak_ns.store(0, std::memory_order_relaxed);
  record.points.store(0, std::memory_order_relaxed);
}

// Negative numbers, as two's complements, for what is freed. The sums are exact at every moment, here and in the record: each event is one addition to each.
void change_live(LedgerRecord& record, std::uint64_t bytes, std::uint64_t blocks) {
  const std::uint64_t now_bytes = live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  const std::uint64_t now_blocks =
      live_blocks.fetch_add(blocks, std::memory_order_relaxed) + blocks;
  const std::uint64_t time_ns = unsigned_now_ns() - begin_ns.load(std::memory_order_relaxed);
  record.live_bytes.fetch_add(bytes, std::memory_order_relaxed);
  record.live_blocks.fetch_add(blocks, std::memory_order_relaxed);
  const bool is_growth = static_cast<std::int64_t>(bytes) > 0;
  if (is_growth && raise(record.peak_live_bytes, now_bytes)) {
    record.peak_ns.store(time_ns, std::memory_order_relaxed);
  }
  if (static_cast<std::int64_t>(blocks) > 0) raise(record.peak_live_blocks, now_blocks);
  take_point(record, time_ns);
}

// --- the record and the sums ---------------------------------------------------------------------

// Until there is a file, and for good where there is none.
constinit LedgerRecord record_in_memory{};
// release at an exchange, acquire at each use: the record's texts and first sums are seen.
constinit std::atomic<LedgerRecord*> record{&record_in_memory};

// Which record the places of the threads belong to; grows with each fork.
constinit std::atomic<std::uint32_t> generation{1};
constinit std::atomic<std::uint32_t> last_thread{0};

// own: of this thread; a forked child's first thread has its parent's.
struct Self {
  std::uint32_t number;      // 0: it has none yet; kept across forks, since blocks bear it
  std::uint32_t place;       // in the record's sums
  std::uint32_t generation;  // to which `place` belongs
};
constinit thread_local Self self{};

void fill(LedgerRecord& content) {
  std::memcpy(content.magic, "TSLEDGR1", sizeof content.magic);
  content.pid = getpid();
  content.parent_pid = getppid();
  name_program(content.executable, sizeof content.executable);
  name_provider(content.provider, sizeof content.provider);
}

void clear_sums(LedgerRecord& content) {
  content.threads.store(0, std::memory_order_relaxed);
  content.untracked_blocks.store(0, std::memory_order_relaxed);
  content.missed_frees.store(0, std::memory_order_relaxed);
  std::memset(static_cast<void*>(content.sums), 0, sizeof content.sums);
}

// At the program's first event, or a forked child's. Events before the first record lie in
// record_in_memory, which goes into the file as it is.
void begin_books_slow() {
  const int saved_errno = errno;
  if (const Begin begin = begin_process("TSMALLOC_LEDGER"); begin != Begin::not_now) {
    LedgerRecord* const old = record.load(std::memory_order_acquire);
    if (begin == Begin::forked) clear_sums(record_in_memory);
    begin_curve(record_in_memory);
    fill(record_in_memory);
    auto* const fresh = static_cast<LedgerRecord*>(
        map_new_file("ledger", &record_in_memory, sizeof record_in_memory));
    record.store(fresh != nullptr ? fresh : &record_in_memory, std::memory_order_release);
    if (begin == Begin::forked) generation.fetch_add(1, std::memory_order_relaxed);
    if (old != &record_in_memory) munmap(old, sizeof *old);  // the parent's, still shared with it
  }
  errno = saved_errno;
}

// For a program that never allocates.
[[gnu::constructor]] void begin_books_at_load() { begin_books_if_new(); }

LedgerRecord& current() { return *record.load(std::memory_order_acquire); }

// Relaxed: numbers only have to differ.
void enrol_slow(LedgerRecord& books, std::uint32_t now) {
  if (self.number == 0) {
    const std::uint32_t number = last_thread.fetch_add(1, std::memory_order_relaxed) + 1;
    self.number = std::min(number, most_threads);
  }
  const std::uint64_t place = books.threads.fetch_add(1, std::memory_order_relaxed);
  self.place = static_cast<std::uint32_t>(std::min<std::uint64_t>(place, thread_places - 1));
  if (place < thread_places - 1) {
    books.sums[place].number.store(self.number, std::memory_order_relaxed);
  }
  self.generation = now;
}

ThreadSums& mine(LedgerRecord& books) {
  const std::uint32_t now = generation.load(std::memory_order_relaxed);
  if (self.generation != now) enrol_slow(books, now);
  return books.sums[self.place];
}

void add(AnyCounter& counter, std::uint64_t amount) {
  if (amount != 0) counter.fetch_add(amount, std::memory_order_relaxed);
}

}  // namespace

void begin_books_if_new() {
  if (!has_begun()) begin_books_slow();
}

std::uint32_t own_thread() {
  mine(current());
  return self.number;
}

void book_allocation(std::uint64_t bytes, std::uint64_t reused_bytes) {
  LedgerRecord& books = current();
  ThreadSums& sums = mine(books);
  add(sums.allocations, 1);
  add(sums.requested_bytes, bytes);
  add(sums.reused_bytes, reused_bytes);
  change_live(books, bytes, 1);
}

void book_free(Block block) {
  LedgerRecord& books = current();
  ThreadSums& sums = mine(books);
  add(sums.frees, 1);
  add(sums.freed_bytes, block.bytes);
  add(sums.foreign_frees, block.thread != self.number ? 1 : 0);
  change_live(books, -block.bytes, -std::uint64_t{1});
}

void book_resize(std::uint64_t old_bytes, std::uint64_t new_bytes, std::uint64_t reused_bytes) {
  LedgerRecord& books = current();
  ThreadSums& sums = mine(books);
  add(sums.resizes, 1);
  add(sums.requested_bytes, new_bytes > old_bytes ? new_bytes - old_bytes : 0);
  add(sums.reused_bytes, reused_bytes);
  change_live(books, new_bytes - old_bytes, 0);
}

void book_untracked() { add(current().untracked_blocks, 1); }

void book_correction(std::uint64_t booked_bytes, std::uint64_t bytes) {
  LedgerRecord& books = current();
  add(mine(books).requested_bytes, bytes - booked_bytes);
  change_live(books, bytes - booked_bytes, 0);
}

void book_missed_free(Block block) {
  LedgerRecord& books = current();
  add(books.missed_frees, 1);
  change_live(books, -block.bytes, -std::uint64_t{1});
}

}  // namespace ts
