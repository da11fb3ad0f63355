// Thread exit. Destructors of keys older and younger than the allocator's own continue to allocate
// in all four rounds. thread_locals hold memory; threads come and go by the hundred thousand or are
// cancelled: everything works, and nothing is left behind.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "every_function.h"

namespace {

constexpr std::size_t megabyte = 1 << 20;

// Runs `threads` of them one after another, in pairs, and returns how much more memory is resident
// than after the first tenth of them.
std::size_t growth_over(unsigned threads, void* (*body)(void*)) {
  std::size_t early = 0;
  for (unsigned i = 0; i < threads; i += 2) {
    const pthread_t pair[] = {start_thread(body, nullptr), start_thread(body, nullptr)};
    for (const pthread_t thread : pair) pthread_join(thread, nullptr);
    if (i == threads / 10 / 2 * 2) early = resident_bytes();
  }
  const std::size_t late = resident_bytes();
  return late > early ? late - early : 0;
}

// ---- keys ----

// The first is created before anything allocates, the last after everything else.
pthread_key_t oldest_key;
pthread_key_t youngest_key;
std::atomic<unsigned> destructor_calls{0};
std::atomic<bool> uses_everything{false};

struct Value {
  pthread_key_t key;
  unsigned char text[300];
};

Value* new_value(pthread_key_t key) {
  auto* const value = static_cast<Value*>(std::malloc(sizeof(Value)));
  REQUIRE(value != nullptr, "malloc is null in a destructor");
  value->key = key;
  fill(value->text, sizeof value->text, key);
  return value;
}

void allocate_again(void* argument) {
  auto* const value = static_cast<Value*>(argument);
  ++destructor_calls;
  const pthread_key_t key = value->key;
  EXPECT_FILLED(value->text, sizeof value->text, key);
  std::free(value);
  if (uses_everything) {
    unsigned called = 0;
    const char* const broken = use_every_function(find_in_program, &called);
    EXPECT(broken == nullptr, "%s does not work in a destructor", broken);
  }
  void* scratch[40];
  for (std::size_t i = 0; i < COUNT_OF(scratch); ++i) scratch[i] = std::malloc(i * 100);
  for (void* block : scratch) std::free(block);
  pthread_setspecific(key, new_value(key));
}

// After the allocator has made its own.
void make_youngest_key() {
  std::free(opaque_pointer(std::malloc(10)));
  REQUIRE(pthread_key_create(&youngest_key, allocate_again) == 0, "pthread_key_create failed");
}

void make_oldest_key() { pthread_key_create(&oldest_key, allocate_again); }
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_constructors)() = make_oldest_key;

void* set_keys(void*) {
  pthread_setspecific(oldest_key, new_value(oldest_key));
  pthread_setspecific(youngest_key, new_value(youngest_key));
  return nullptr;
}

CHECK("destructors of keys call every function in every round") {
  constexpr unsigned threads = 10;
  make_youngest_key();
  uses_everything = true;
  for (unsigned i = 0; i < threads; ++i) run_thread(set_keys, nullptr);
  EXPECT(destructor_calls == threads * 2 * PTHREAD_DESTRUCTOR_ITERATIONS, "%u calls",
         destructor_calls.load());
}

// The values of the last round are lost: 600 bytes per thread, and the gaps between them, which are
// larger where each block is cut from the largest free one.
CHECK("what is allocated in the last destructors keeps nothing else") {
  const unsigned threads = check_is_long() ? 100'000 : 6000;
  make_youngest_key();
  const std::size_t growth = growth_over(threads, set_keys);
  const std::size_t spread = std::strstr(tested_library(), "-worst") != nullptr ? 4 : 2;
  const std::size_t lost = std::size_t{threads} * 2 * (spread * sizeof(Value));
  report_figure("%u threads, of which each loses two blocks, left %zu KiB", threads, growth >> 10);
  EXPECT(growth <= lost + 2 * megabyte, "%u threads left %zu bytes behind", threads, growth);
}

// ---- thread_locals ----

class Holder {
 public:
  Holder() { fill(block_, bytes, 5); }
  ~Holder() {
    EXPECT_FILLED(block_, bytes, 5);
    std::free(block_);
    unsigned called = 0;
    const char* const broken = use_every_function(find_in_program, &called);
    EXPECT(broken == nullptr, "%s does not work in a thread_local's destructor", broken);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

 private:
  static constexpr std::size_t bytes = 5000;
  void* block_ = std::malloc(bytes);
};

thread_local Holder holder;
thread_local std::vector<std::string> words;

CHECK("destructors of thread_locals call every function") {
  for (int round = 0; round < 5; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([] {
        opaque_pointer(&holder);  // constructs it
        words.assign(100, std::string(200, 'w'));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// ---- many threads ----

void* live_shortly(void*) {
  void* blocks[20];
  for (std::size_t i = 0; i < COUNT_OF(blocks); ++i) {
    blocks[i] = std::malloc(50 + i * 60);
    REQUIRE(blocks[i] != nullptr, "malloc is null");
    std::memset(blocks[i], 1, 50);
  }
  for (void* block : blocks) std::free(block);
  return nullptr;
}

CHECK("short threads leave nothing behind") {
  const unsigned threads = check_is_long() ? 100'000 : 10'000;
  const std::size_t growth = growth_over(threads, live_shortly);
  EXPECT(growth <= 2 * megabyte, "%u threads left %zu bytes behind", threads, growth);
}

// ---- cancellation ----

std::atomic<unsigned> cancelled_in_work{0};

void release_all(void* argument) {
  ++cancelled_in_work;
  auto** const blocks = static_cast<void**>(argument);
  for (std::size_t i = 0; i < 20; ++i) std::free(blocks[i]);
}

// Allocates until cancelled: at pthread_testcancel, or in a blocking system call.
void* work_until_cancelled(void* argument) {
  void* blocks[20] = {};
  pthread_cleanup_push(release_all, blocks);
  auto random = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(argument));
  for (;;) {
    void*& block = blocks[next_random(&random) % COUNT_OF(blocks)];
    std::free(block);
    block = std::malloc(random_size(&random, 100'000));
    if (next_random(&random) % 64 == 0) usleep(1);
    pthread_testcancel();
  }
  pthread_cleanup_pop(0);
  return nullptr;
}

// During the first half, a heap that places blocks at random, like the hardened one, comes to use
// all the memory that it spreads them over.
CHECK("cancelled threads leave nothing behind") {
  const unsigned rounds = check_is_long() ? 5000 : 600;
  constexpr std::size_t at_once = 4;
  std::size_t early = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    pthread_t threads[at_once];
    for (std::size_t i = 0; i < at_once; ++i)
      threads[i] =
          start_thread(work_until_cancelled, reinterpret_cast<void*>(round * at_once + i + 1));
    usleep(200);
    for (const pthread_t thread : threads) {
      pthread_cancel(thread);
      void* result = nullptr;
      pthread_join(thread, &result);
      EXPECT(result == PTHREAD_CANCELED, "a thread ended by itself");
    }
    if (round == rounds / 2) early = resident_bytes();
  }
  const std::size_t late = resident_bytes();
  EXPECT(cancelled_in_work != 0, "no thread was cancelled at work");
  EXPECT(late <= early + 4 * megabyte, "%u cancelled threads left %zu bytes behind",
         rounds / 2 * static_cast<unsigned>(at_once), late - early);
}

}  // namespace
