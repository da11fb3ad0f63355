// Forks from a program full of threads and heaps: eight threads do mixed work on heaps of all
// strategies, fits and sources at once while another forks again and again. A fork must lock all
// heaps, in an order that cannot deadlock. Each child checks and frees blocks that other threads
// had allocated, allocates, sometimes starts a thread, and execs. A lock that a fork left behind
// shows as a hang, which an alarm ends; a torn heap shows as damaged contents,
// a crash, or a failed heap check. (ForkInThreadedProgram tests malloc itself.)
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "programs/allocator.h"
#include "programs/support/arguments.h"
#include "programs/support/content.h"
#include "programs/support/team.h"
#include "stress/post_office.h"
#include "tsmalloc/classic.h"

namespace ts::stress {
namespace {

using test::Content;
using test::Random;

constexpr unsigned child_seconds = 20;   // more than enough for a child that does not hang
constexpr std::size_t boxes = 512;       // blocks that children inherit
constexpr std::size_t thread_every = 8;  // one in this many children also starts a thread
constexpr std::size_t allocations_in_child = 64;
// Exit statuses of a child: a block is damaged, it could not exec, or a heap is not sound.
constexpr int damaged = 3;
constexpr int no_exec = 4;
constexpr int unsound = 5;

// ---- the heaps ----

constexpr std::size_t heaps_count = std::size_t{TS_STRATEGY_COUNT} * TS_FIT_COUNT * TS_SOURCE_COUNT;
constexpr std::size_t buffer_bytes = std::size_t{256} << 10;

ts_heap* heaps[heaps_count];

ts_strategy strategy_of(std::size_t heap) {
  return static_cast<ts_strategy>(heap / TS_SOURCE_COUNT / TS_FIT_COUNT);
}
ts_fit fit_of(std::size_t heap) {
  return static_cast<ts_fit>(heap / TS_SOURCE_COUNT % TS_FIT_COUNT);
}
ts_source source_of(std::size_t heap) { return static_cast<ts_source>(heap % TS_SOURCE_COUNT); }

// Heaps that grow by only what is missing, and return memory soon, keep the locks around the
// sources busy.
void create_heaps(test::MappedArray<std::byte>& buffers) {
  for (std::size_t i = 0; i < heaps_count; ++i) {
    ts_heap_options options{};
    options.strategy = strategy_of(i);
    options.fit = fit_of(i);
    options.source = source_of(i);
    if (options.source == TS_SOURCE_BUFFER) {
      options.buffer = &buffers[i * buffer_bytes];
      options.buffer_size = buffer_bytes;
    }
    options.trim_threshold = 4096;
    heaps[i] = ts_heap_create(&options);
    if (heaps[i] == nullptr) {
      std::perror("FAILED: ts_heap_create");
      std::exit(1);
    }
  }
}

// Whether a child can rely on ts_heap_check(). A thread heap caught in mid-call is abandoned as it
// is, and the sums of a lock-free heap may lack what a call had yet to count.
bool is_sound_after_fork(std::size_t heap) {
  return strategy_of(heap) != TS_STRATEGY_NOLOCK && strategy_of(heap) != TS_STRATEGY_LOCKFREE;
}

bool heaps_are_sound_in_child() {
  for (std::size_t i = 0; i < heaps_count; ++i) {
    if (is_sound_after_fork(i) && ts_heap_check(heaps[i]) != 1) return false;
  }
  return true;
}

int is_used(const ts_block* block, void*) { return block->state == TS_BLOCK_USED ? 1 : 0; }

// After everything is freed, every heap must be sound and have lost no block.
bool heaps_are_whole() {
  bool whole = true;
  for (std::size_t i = 0; i < heaps_count; ++i) {
    if (ts_heap_check(heaps[i]) == 1 && ts_heap_walk(heaps[i], is_used, nullptr) == 0) continue;
    std::fprintf(stderr, "FAILED: heap %s-%s, source %d: not whole after everything was freed\n",
                 ts_strategy_name(strategy_of(i)), ts_fit_name(fit_of(i)), source_of(i));
    whole = false;
  }
  return whole;
}

// ---- blocks ----

struct Block {
  char* address;
  std::size_t bytes;
  std::uint64_t key;
  std::size_t heap;
};

// From any heap, filled; a null address if a buffer is full.
Block make_block(Random& random, std::uint64_t key) {
  const std::size_t heap = random.below(heaps_count);
  const std::size_t bytes = random.one_in(50) ? random.below(100'000) : random.below(2'000);
  void* address = random.one_in(4) ? ts_heap_aligned_alloc(heaps[heap], 64, bytes)
                                   : ts_heap_malloc(heaps[heap], bytes);
  if (address != nullptr && random.one_in(4)) {
    if (void* moved = ts_heap_realloc(heaps[heap], address, bytes + 64)) address = moved;
  }
  if (address == nullptr && source_of(heap) != TS_SOURCE_BUFFER) {
    std::fputs("FAILED: ts_heap_malloc returned null\n", stderr);
    std::_Exit(1);
  }
  const Block block{static_cast<char*>(address), bytes, key, heap};
  if (address != nullptr) Content{block.address, bytes, key}.write(block.address, bytes);
  return block;
}

void release(const Block& block) { ts_heap_free(heaps[block.heap], block.address); }

// A failed allocation counts as intact.
bool is_intact(const Block& block) {
  return block.address == nullptr || Content{block.address, block.bytes, block.key}.first_damage(
                                         block.address, block.bytes) == test::intact;
}

// ---- the work of threads and of children ----

// While a child runs, the threads rest: it has memory of its own, and needs the processor.
std::atomic<bool> is_resting{false};
std::mutex rest;
std::atomic<std::size_t> steps{0};

// Allocates blocks and posts them; takes those of others, checks and frees them.
void mixed_work(PostOffice<Block>& office, std::uint64_t seed, std::uint64_t key,
                const std::atomic<bool>& stop) {
  Random random{seed};
  while (!stop.load(std::memory_order_relaxed)) {
    steps.fetch_add(1, std::memory_order_relaxed);
    if (is_resting) const std::lock_guard until_its_end{rest};
    const Block mine = make_block(random, key);
    Block foreign{};
    bool is_sound = is_intact(mine);
    if (!office.post(random.below(boxes), mine)) release(mine);
    if (is_sound && (random.one_in(2) || !office.take(random.below(boxes), foreign))) continue;
    is_sound = is_sound && is_intact(foreign);
    if (!is_sound) {
      std::fputs("FAILED: a block of a thread is damaged\n", stderr);
      std::_Exit(1);
    }
    release(foreign);
  }
}

// What the child does before it execs; returns 0, or its exit status.
int work_in_child(PostOffice<Block>& office, std::size_t number) {
  Random random{number};
  // The boxes are as they were at the fork; one that was being filled or emptied stays busy for
  // good.
  for (std::size_t box = 0; box < boxes; ++box) {
    Block inherited{};
    if (random.one_in(2) || !office.take(box, inherited)) continue;
    if (!is_intact(inherited)) return damaged;
    release(inherited);
  }
  Block mine[allocations_in_child];
  for (Block& block : mine) block = make_block(random, number);
  for (const Block& block : mine) {
    if (!is_intact(block)) return damaged;
    release(block);
  }
  return 0;
}

[[noreturn]] void be_child(PostOffice<Block>& office, std::size_t number) {
  // Kills the child, including the exec'd program.
  ::alarm(child_seconds);
  if (!heaps_are_sound_in_child()) ::_exit(unsound);
  int status = work_in_child(office, number);
  if (status == 0 && number % thread_every == 0)
    std::thread{[&] { status = work_in_child(office, number); }}.join();
  if (status != 0) ::_exit(status);
  ::execl("/bin/true", "true", static_cast<char*>(nullptr));
  ::_exit(no_exec);
}

// ---- the forks ----

// Forks `forks` times; false after the first child that did not end well.
bool fork_often(PostOffice<Block>& office, std::size_t forks) {
  constexpr std::size_t steps_between = 100;
  for (std::size_t number = 1; number <= forks; ++number) {
    ::alarm(child_seconds + 10);  // ends this process if the fork or a thread hangs
    for (const std::size_t now = steps; steps < now + steps_between;) ::usleep(100);
    const pid_t child = ::fork();
    if (child == 0) be_child(office, number);
    const std::lock_guard until_the_childs_end{rest};
    is_resting = true;
    if (child < 0) {
      std::perror("fork");
      return false;
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    is_resting = false;
    if (status != 0) {
      std::fprintf(stderr, "FAILED: child %zu ended with wait status %d%s\n", number, status,
                   WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? ": it hung" : "");
      return false;
    }
  }
  return true;
}

// Whether every child ended well.
bool run(std::size_t forks, std::size_t threads, std::uint64_t seed) {
  PostOffice<Block> office{boxes};
  std::atomic<bool> stop{false};
  bool sound = false;
  test::run_team(threads + 1, [&](std::uint32_t number) {
    if (number < threads) return mixed_work(office, test::seed_of(seed, number), number, stop);
    sound = fork_often(office, forks);
    stop = true;
    ::alarm(child_seconds);  // for the threads to end
  });
  ::alarm(0);
  for (std::size_t box = 0; box < boxes; ++box) {
    Block left{};
    if (office.take(box, left)) release(left);
  }
  return sound;
}

}  // namespace
}  // namespace ts::stress

int main(int argc, char** argv) {
  using namespace ts::stress;
  ts::test::Arguments arguments{argc, argv, "Forks from a program full of threads and heaps."};
  const std::size_t forks = arguments.number("forks", 100, "children");
  const std::size_t threads = arguments.number("threads", 8, "threads that work meanwhile");
  const std::uint64_t seed = arguments.number("seed", 1, "of what the threads do");
  arguments.finish();

  ts::test::settle_libc_break();
  ts::test::MappedArray<std::byte> buffers{heaps_count * buffer_bytes};
  create_heaps(buffers);
  if (!run(forks, threads, seed) || !heaps_are_whole()) return 1;
  std::printf("%zu children of a process with %zu threads and %zu heaps ran (seed %llu)\n", forks,
              threads, heaps_count, static_cast<unsigned long long>(seed));
  for (ts_heap* heap : heaps) ts_heap_destroy(heap);
  return 0;
}
