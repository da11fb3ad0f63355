// Acquires chunks, and notices births and ends of threads; see shim.h.
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "common/system.h"
#include "interpose/next.h"
#include "record/shim.h"

namespace ts::record {
namespace {

constexpr long nap_ns = 100'000'000;  // a wait for room ends then, whatever was missed
constexpr int max_spins = 64;  // before the first wait: the collector may be about to return one
// The collector comes by at least ten times a second. If it has not for this long, it was killed.
constexpr std::uint64_t max_idle_naps = 100;
constexpr std::uint64_t max_idle_spins = 200'000'000;  // if naps are forbidden

void pause_processor() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

Chunk* claim_among(Ring& ring, std::uint32_t owner, std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t i = begin; i < end; ++i) {
    std::uint32_t unowned = 0;
    if (ring.owners[i].load(std::memory_order_relaxed) == 0 &&
        ring.owners[i].compare_exchange_strong(unowned, owner, std::memory_order_acquire,
                                               std::memory_order_relaxed)) {
      ring.first_free.store(i + 1, std::memory_order_relaxed);
      Chunk& chunk = ring.chunks()[i];
      chunk.head.index = i;
      return &chunk;
    }
  }
  return nullptr;
}

// Low chunks first: a ring that is emptied in time stays in the cache.
Chunk* claim_chunk(const ImagePlace& image) {
  Ring& ring = *own_ring.load(std::memory_order_acquire);
  const std::uint32_t count = ring.chunk_count;
  const std::uint32_t owner = image.index + 1;
  const std::uint32_t first = ring.first_free.load(std::memory_order_relaxed);
  Chunk* const found = first < count ? claim_among(ring, owner, first, count) : nullptr;
  if (found != nullptr) return found;
  return claim_among(ring, owner, 0, first < count ? first : count);
}

void nap(Ring& ring, std::uint32_t seen) {
  if (!may_call_system.load(std::memory_order_relaxed)) {
    pause_processor();
    return;
  }
  const timespec timeout{.tv_sec = 0, .tv_nsec = nap_ns};
  // Shared between processes, so not FUTEX_PRIVATE_FLAG.
  syscall(SYS_futex, &ring.given_back, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

// Waits for a chunk; null if there is none.
Chunk* wait_for_chunk(ImagePlace& image) {
  Ring& ring = *own_ring.load(std::memory_order_acquire);
  std::uint64_t rounds = ring.rounds.load(std::memory_order_relaxed);
  const bool can_nap = may_call_system.load(std::memory_order_relaxed);
  const std::uint64_t max_idle = can_nap ? max_idle_naps : max_idle_spins;
  for (std::uint64_t idle = 0; idle < max_idle;) {
    ring.waiting.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = ring.given_back.load(std::memory_order_seq_cst);
    Chunk* const chunk = claim_chunk(image);
    if (chunk == nullptr && ring.is_exhausted.load(std::memory_order_relaxed) == 0) {
      nap(ring, seen);
    }
    ring.waiting.fetch_sub(1, std::memory_order_relaxed);
    if (chunk != nullptr) return chunk;
    if (ring.is_exhausted.load(std::memory_order_relaxed) != 0) return nullptr;
    const std::uint64_t now_rounds = ring.rounds.load(std::memory_order_relaxed);
    idle = now_rounds == rounds ? idle + 1 : 0;
    rounds = now_rounds;
  }
  stop_recording();
  return nullptr;
}

Chunk* get_chunk(ImagePlace& image) {
  for (int i = 0; i < max_spins; ++i) {
    Chunk* const chunk = claim_chunk(image);
    if (chunk != nullptr) return chunk;
    pause_processor();
  }
  image.waits.fetch_add(1, std::memory_order_relaxed);
  const bool has_clock = may_read_clock.load(std::memory_order_relaxed);
  const std::uint64_t begin_ns = has_clock ? unsigned_now_ns() : 0;
  Chunk* const chunk = wait_for_chunk(image);
  if (has_clock) image.wait_ns.fetch_add(unsigned_now_ns() - begin_ns, std::memory_order_relaxed);
  if (chunk == nullptr) image.given_up.fetch_add(1, std::memory_order_relaxed);
  return chunk;
}

void give_back_unused(Chunk& chunk) {
  Ring& ring = *own_ring.load(std::memory_order_acquire);
  ring.owners[chunk.head.index].store(0, std::memory_order_release);
}

void increment_alone(std::atomic<std::uint32_t>& counter) {
  // There is one writer; a signal handler in between may lose a count, but nothing else.
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

constinit pthread_key_t end_key = 0;
constinit bool has_end_key = false;
constexpr std::uintptr_t end_round = PTHREAD_DESTRUCTOR_ITERATIONS - 1;

// The calling thread's end must be noticed.
void watch_own_end() {
  if (!has_end_key) return;
  const std::uintptr_t round = self.former_number == 0 ? 1 : end_round;
  pthread_setspecific(end_key, reinterpret_cast<void*>(round));
}

}  // namespace

constinit thread_local Thread self{};

void enrol(ImagePlace& image) {
  if (self.number != 0) return;
  const std::uint32_t number = image.next_thread.fetch_add(1, std::memory_order_relaxed);
  if (self.number == 0) self.number = number + 1;
}

bool take_chunk(ImagePlace& image) {
  const int saved_errno = errno;
  enrol(image);
  Record* const before = self.next;
  Chunk* const chunk = is_at_chunk_end(before) ? get_chunk(image) : nullptr;
  if (chunk != nullptr) {
    chunk->head.thread.store(self.number - 1, std::memory_order_relaxed);
    // A signal handler may have got one meanwhile.
    if (!move_on(self.next, before, chunk->records)) give_back_unused(*chunk);
  }
  errno = saved_errno;
  if (is_at_chunk_end(self.next)) return false;
  if (self.is_announced == 0) {
    self.is_announced = 1;
    write_event(image, RawKind::thread_begin, self.number - 1, self.former_number);
    watch_own_end();
  }
  return true;
}

void note_ignored(ImagePlace& image) {
  if (is_at_chunk_end(self.next)) {  // not for this: libc's last free(NULL) comes after the end
    image.ignored.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  // The head of the chunk that the next record is in.
  const auto chunk = reinterpret_cast<std::uintptr_t>(self.next) / chunk_bytes * chunk_bytes;
  increment_alone(reinterpret_cast<Chunk*>(chunk)->head.ignored);
}

namespace {

// It writes no more into its chunk.
void leave_chunk() {
  Record* const next = self.next;
  self.next = nullptr;
  if (is_at_chunk_end(next)) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(next) / chunk_bytes * chunk_bytes;
  auto* const chunk = reinterpret_cast<Chunk*>(begin);
  const auto used = static_cast<std::uint32_t>(next - chunk->records);
  // release: pairs with the collector's acquire; the records are seen
  chunk->head.closed.store(1 + used, std::memory_order_release);
}

// --- births and ends of threads ---

// The function of a new thread, from creation until the thread takes it.
struct Start {
  std::atomic<bool> is_taken;  // by a creator (acquire), until the thread has read it (release)
  bool is_c11;
  std::uint32_t number;  // 1 + the thread's
  union {
    void* (*posix)(void*);
    int (*c11)(void*);
  } routine;
  void* argument;
};

// If all are in use, a thread begins unannounced.
constexpr std::size_t max_starts = 1024;
constinit Start starts[max_starts]{};

using PosixRoutine = void*(void*);
using C11Routine = int(void*);
constinit Next<int(pthread_t*, const pthread_attr_t*, PosixRoutine*, void*)> next_create{
    "pthread_create"};
constinit Next<int(thrd_t*, C11Routine*, void*)> next_c11_create{"thrd_create"};

Start* take_start() {
  for (Start& start : starts) {
    if (!start.is_taken.exchange(true, std::memory_order_acquire)) return &start;
  }
  return nullptr;
}

// Null: the thread must begin by itself.
Start* announce(bool is_c11, void* argument) {
  ImagePlace* const image = own_image();
  Start* const start = image != nullptr ? take_start() : nullptr;
  if (start == nullptr) return nullptr;
  enrol(*image);
  start->is_c11 = is_c11;
  start->argument = argument;
  const std::uint32_t number = image->next_thread.fetch_add(1, std::memory_order_relaxed);
  start->number = number + 1;
  write_event(*image, RawKind::thread_begin, number, self.number);
  return start;
}

// The thread was not created after all.
void withdraw(Start& start) {
  const std::uint32_t number = start.number - 1;
  start.is_taken.store(false, std::memory_order_release);
  ImagePlace* const image = own_image();
  if (image != nullptr) write_event(*image, RawKind::thread_end, number, 0);
}

void begin_thread(std::uint32_t number) {
  if (self.number != 0) return;  // a signal handler was faster
  self.number = number;
  self.is_announced = 1;
  watch_own_end();
}

void* run_thread(void* given) {
  Start& start = *static_cast<Start*>(given);
  const auto routine = start.routine;
  const bool is_c11 = start.is_c11;
  void* const argument = start.argument;
  begin_thread(start.number);
  start.is_taken.store(false, std::memory_order_release);
  if (is_c11) return reinterpret_cast<void*>(static_cast<std::intptr_t>(routine.c11(argument)));
  return routine.posix(argument);
}

int run_c11_thread(void* given) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(run_thread(given)));
}

// The destructor of thread-specific data, called in rounds as long as some are set.
void note_end(void* value) {
  const auto round = reinterpret_cast<std::uintptr_t>(value);
  ImagePlace* const image = own_image();
  if (image == nullptr || self.number == 0) return;
  if (round < end_round) {
    pthread_setspecific(end_key, reinterpret_cast<void*>(round + 1));
    return;
  }
  write_event(*image, RawKind::thread_end, self.number - 1, 0);
  leave_chunk();
  self.former_number = self.number;
  self.number = 0;
  self.is_announced = 0;
}

}  // namespace

void watch_threads() {
  next_create.get();
  next_c11_create.get();
  has_end_key = pthread_key_create(&end_key, note_end) == 0;
  watch_own_end();
}

void watch_threads_in_child() {
  for (Start& start : starts) start.is_taken.store(false, std::memory_order_relaxed);
  watch_own_end();
}

}  // namespace ts::record

using ts::record::Start;

extern "C" {

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*routine)(void*),
                   void* argument) noexcept {
  auto* const next = ts::record::next_create.get();
  Start* const start = ts::record::announce(false, argument);
  if (start == nullptr) return next(thread, attributes, routine, argument);
  start->routine.posix = routine;
  const int error_number = next(thread, attributes, ts::record::run_thread, start);
  if (error_number != 0) ts::record::withdraw(*start);
  return error_number;
}

int thrd_create(thrd_t* thread, int (*routine)(void*), void* argument) {
  auto* const next = ts::record::next_c11_create.get();
  Start* const start = ts::record::announce(true, argument);
  if (start == nullptr) return next(thread, routine, argument);
  start->routine.c11 = routine;
  const int status = next(thread, ts::record::run_c11_thread, start);
  if (status != thrd_success) ts::record::withdraw(*start);
  return status;
}

}  // extern "C"
