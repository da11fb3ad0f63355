// Births and ends of threads; see image.h.
//
// A thread's beginning is an event of its creator, drawn before the thread exists, so it comes
// before all that the thread does. Its end is drawn in the last but one round of thread-specific
// destructors. If another destructor allocates after that, the event belongs to a thread without a
// past, created by the one that has ended: so nothing is lost, and no thread acts after its end.
#include <pthread.h>
#include <threads.h>

#include <cerrno>
#include <climits>

#include "interpose/next.h"
#include "record/thread.h"

namespace ts::record {
namespace {

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

constinit pthread_key_t end_key = 0;
constinit bool has_end_key = false;
constexpr std::uintptr_t end_round = PTHREAD_DESTRUCTOR_ITERATIONS - 1;

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

void watch_own_end() {
  if (!has_end_key) return;
  const std::uintptr_t round = self.former_number == 0 ? 1 : end_round;
  pthread_setspecific(end_key, reinterpret_cast<void*>(round));
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
