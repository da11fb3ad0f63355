// Whether memory follows the program: after a peak, across threads, across sizes. Each check is a
// usage pattern from public complaints about allocators, and its bounds are what the complaints ask
// for, as multiples of the program's own data. An idle program calls nothing. TSMALLOC_TEST_TIMES=1
// also prints how long single calls of malloc and free take.
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "conformance/check.h"
#include "footprint/memory.h"

enum { kb = 1 << 10, mb = 1 << 20, page = 4096 };

// ---- what the process has ----

// The memory of the process before the pattern began.
static size_t base;

static size_t above_base(const char* key) {
  const size_t bytes = memory(key);
  return bytes > base ? bytes - base : 0;
}
static size_t resident(void) { return above_base("VmRSS:"); }
static size_t peak(void) { return above_base("VmHWM:"); }

// Call this first, once memory that is not part of the pattern is allocated.
static void begin(void) { base = memory("VmRSS:"); }

// Memory for the pattern's own tables, outside the heap and resident from the start.
static void* table(size_t count, size_t each) {
  void* const p = mmap(NULL, count * each, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  REQUIRE(p != MAP_FAILED, "mmap failed");
  return p;
}

// The bytes that the program has in use, and their peak.
static atomic_size_t live, most_live;

static void grow_live(size_t bytes) {
  const size_t now = atomic_fetch_add(&live, bytes) + bytes;
  size_t most = atomic_load(&most_live);
  while (now > most && !atomic_compare_exchange_weak(&most_live, &most, now)) continue;
}

// ---- calls, and how long they take ----

enum { time_bits = 5, times_count = 40 << time_bits };
static bool is_timed;
static atomic_uint times[times_count];  // in nanoseconds, 32 per octave

static uint64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void note_time(uint64_t since) {
  const uint64_t taken = nanoseconds() - since + (1 << time_bits);
  const unsigned shift = 63U - (unsigned)__builtin_clzll(taken) - time_bits;
  const size_t at = (size_t)shift * (1 << time_bits) + (taken >> shift);
  atomic_fetch_add_explicit(&times[at < times_count ? at : times_count - 1], 1,
                            memory_order_relaxed);
}

static uint64_t time_at(size_t at) {
  const size_t shift = at >> time_bits <= 1 ? 0 : (at >> time_bits) - 1;
  return ((uint64_t)(at - shift * (1 << time_bits)) << shift) - (1 << time_bits);
}

static void report_times(void) {
  static const double parts[] = {0.5, 0.999, 0.99999, 1};
  uint64_t shown[COUNT_OF(parts)] = {0};
  uint64_t all = 0;
  uint64_t seen = 0;
  for (size_t i = 0; i < times_count; ++i) all += times[i];
  for (size_t i = 0, part = 0; i < times_count && part < COUNT_OF(parts); ++i) {
    seen += times[i];
    while (part < COUNT_OF(parts) && seen != 0 && (double)seen >= parts[part] * (double)all)
      shown[part++] = time_at(i);
  }
  report_figure("%lu calls: median %lu ns, p99.9 %lu ns, p99.999 %lu ns, worst %lu us",
                (unsigned long)all, (unsigned long)shown[0], (unsigned long)shown[1],
                (unsigned long)shown[2], (unsigned long)shown[3] / 1000);
}

// malloc, with the whole block written.
static void* take(size_t bytes) {
  const uint64_t since = is_timed ? nanoseconds() : 0;
  void* const p = malloc(bytes);
  if (is_timed) note_time(since);
  REQUIRE(p != NULL, "malloc(%zu) is null", bytes);
  memset(p, 1, bytes);
  return p;
}

static void drop(void* p) {
  const uint64_t since = is_timed ? nanoseconds() : 0;
  free(p);
  if (is_timed) note_time(since);
}

// The same with the bytes counted.
static void* take_live(size_t bytes) {
  grow_live(bytes);
  return take(bytes);
}

static void drop_live(void* p, size_t bytes) {
  drop(p);
  live -= bytes;
}

// ---- waiting ----

// A few small blocks at a time, ten times a second.
static void heartbeat_of(unsigned count, unsigned milliseconds) {
  enum { most = 1000 };
  void* blocks[most];
  for (unsigned at = 0; at < milliseconds; at += 100) {
    for (unsigned i = 0; i < count; ++i) blocks[i] = take(100);
    for (unsigned i = 0; i < count; ++i) drop(blocks[i]);
    idle(100);
  }
}

static void heartbeat(unsigned milliseconds) { heartbeat_of(1, milliseconds); }

enum { settle = 2000 };  // milliseconds

// ---- bounds ----

// The goal, and the engine's promise where that is larger.
typedef struct Bound {
  double goal, today;
} Bound;
static const Bound none;

static Bound goal(double figure) { return (Bound){figure, figure}; }

static void expect_at_most(const char* what, double figure, Bound bound) {
  if (bound.goal == 0) return;
  report_figure("%s: %.2f, goal %.2f", what, figure, bound.goal);
  EXPECT(figure <= bound.today, "%s: %.2f", what, figure);
}

// The two figures of most complaints: the peak as a multiple of the live data, and how much of the
// peak stays. A failure prints the memory report.
static void expect_memory(Bound peak_of_live, Bound stays_of_peak) {
  const double high = (double)peak();
  const double left = (double)resident();
  const double of_live = most_live != 0 ? high / (double)most_live : 0;
  report_figure("live %zu MB, peak %.1f MB (%.2f), left %.1f MB (%.1f %% of the peak)",
                most_live / mb, high / mb, of_live, left / mb, 100 * left / high);
  if (is_timed) report_times();
  expect_at_most("the peak by what was live", of_live, peak_of_live);
  expect_at_most("what stays by the peak", left / high, stays_of_peak);
  if (check_has_failed()) malloc_stats();
}

// ---- threads ----

enum { most_threads = 2000 };
static pthread_t ids[most_threads];
static unsigned started;

static void start(unsigned count, void* (*run)(void*), void* argument) {
  for (unsigned i = 0; i < count; ++i) {
    REQUIRE(started < most_threads, "too many threads");
    ids[started++] = start_thread_on_stack(512 * kb, run, argument);
  }
}

static void join_all(void) {
  while (started != 0) pthread_join(ids[--started], NULL);
}

// Finished threads wait here until the process ends.
static atomic_uint done;

static void* wait_for_ever(void* unused) {
  atomic_fetch_add(&done, 1);
  for (;;) pause();
  return unused;
}

static void* allocate_and_wait(void* unused) {
  drop(take(100));
  return wait_for_ever(unused);
}

static void await_done(unsigned count) {
  while (atomic_load(&done) != count) idle(1);
}

// Makes the process multi-threaded, as servers are.
static void have_two_threads(void) {
  start(1, allocate_and_wait, NULL);
  await_done(1);
}

static size_t between(uint64_t* state, size_t least, size_t most) {
  return least + next_random(state) % (most - least + 1);
}

// ---- after a peak ----

CHECK("after a mixed burst 5 % stays") {
  enum { count = 384 * mb / (128 * kb + 512) * 2 };
  void** const blocks = table(count, sizeof *blocks);
  begin();
  for (size_t i = 0; i < count; ++i) blocks[i] = take_live(i % 2 == 0 ? 128 * kb : 512);
  for (size_t i = 0; i < count; ++i) drop(blocks[i]);
  idle(settle);
  expect_memory(none, goal(0.05));
}

static size_t minor_faults(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (size_t)usage.ru_minflt;
}

CHECK("a sawtooth keeps a quarter of its faults and 10 %") {
  enum { rounds = 30, high = 240 * mb, low = 20 * mb, most = 200000 };
  struct {
    void* at;
    size_t bytes;
  }* const blocks = table(most, sizeof *blocks);
  uint64_t state = 1;
  size_t count = 0;
  have_two_threads();
  begin();
  size_t faults = 0;
  size_t grown = 0;
  for (int round = 0; round < rounds; ++round) {
    const size_t before = minor_faults();
    while (live < high) {
      REQUIRE(count < most, "too many blocks");
      blocks[count].bytes = between(&state, 200, 20000);
      blocks[count].at = take_live(blocks[count].bytes);
      if (round != 0) grown += blocks[count].bytes;
      ++count;
    }
    while (live > (round == rounds - 1 ? 0 : low)) {
      const size_t chosen = next_random(&state) % count;
      drop_live(blocks[chosen].at, blocks[chosen].bytes);
      blocks[chosen] = blocks[--count];
    }
    if (round != 0) faults += minor_faults() - before;
  }
  idle(settle);
  expect_at_most("what was faulted in anew by what grew", (double)(faults * page) / (double)grown,
                 goal(0.25));
  expect_memory(none, goal(0.1));
}

// Requests of 20 MB with nothing between them.
CHECK("a server that is called each 20 ms keeps its pages") {
  enum { requests = 100, first = 10, most = 20000 };
  void** const blocks = table(most, sizeof *blocks);
  uint64_t state = 9;
  have_two_threads();
  begin();
  size_t faults = 0;
  size_t used = 0;
  for (int request = 0; request < requests; ++request) {
    const size_t before = minor_faults();
    size_t count = 0;
    size_t bytes = 0;
    while (bytes < 20 * mb) {
      const size_t each = between(&state, 16, 1 << between(&state, 5, 15));
      REQUIRE(count < most, "too many blocks");
      blocks[count++] = take(each);
      bytes += each;
    }
    for (size_t i = 0; i < count; ++i) drop(blocks[i]);
    if (request >= first) {
      faults += minor_faults() - before;
      used += bytes;
    }
    idle(20);
  }
  expect_at_most("what is faulted in anew by what a request uses",
                 (double)(faults * page) / (double)used, goal(0.25));
  idle(settle);
  expect_at_most("MB that stay", (double)resident() / mb, goal(12));
}

// How many requests of 2 MB are handled in a second.
static unsigned requests_in_a_second(uint64_t* state) {
  enum { most = 4000 };
  void* blocks[most];
  unsigned requests = 0;
  for (const uint64_t begun = nanoseconds(); nanoseconds() - begun < 1000000000; ++requests) {
    size_t count = 0;
    for (size_t bytes = 0; bytes < 2 * mb && count < most; ++count) {
      const size_t each = between(state, 16, 1 << between(state, 5, 15));
      blocks[count] = take(each);
      bytes += each;
    }
    for (size_t i = 0; i < count; ++i) drop(blocks[i]);
  }
  return requests;
}

// A burst, requests for a second, a rest in which memory is purged, and requests again. Times are
// printed, but decide nothing.
CHECK("a server rests and wakes") {
  enum { most = 500 * mb / 4096 };
  void** const blocks = table(most, sizeof *blocks);
  uint64_t state = 12;
  have_two_threads();
  begin();
  for (int i = 0; i < most; ++i) blocks[i] = take_live(between(&state, 16, 2 * 4096));
  for (int i = 0; i < most; ++i) drop(blocks[i]);
  const unsigned before = requests_in_a_second(&state);
  idle(settle);
  const double left = (double)resident() / (double)peak();
  const unsigned woken = requests_in_a_second(&state);
  report_figure("a second's requests before the rest by those behind it: %.3f, goal %.2f",
                (double)before / (double)woken, 1.05);
  expect_at_most("what stays by the peak while it rests", left, goal(0.1));
}

static void one_in_200_stays_with(unsigned beats) {
  enum { count = 400 * mb / 160 };
  void** const blocks = table(count, sizeof *blocks);
  uint64_t state = 2;
  have_two_threads();
  begin();
  for (size_t i = 0; i < count; ++i) blocks[i] = take_live(between(&state, 64, 256));
  for (size_t i = 0; i < count; ++i) {
    if (i % 200 != 0) drop(blocks[i]);
  }
  heartbeat_of(beats, settle);
  expect_memory(none, (Bound){0.25, 0.6});
}
CHECK("where one block in 200 stays 25 % stays") { one_in_200_stays_with(1); }
CHECK("where one block in 200 stays 25 % stays, with more calls") { one_in_200_stays_with(1000); }

CHECK("where one block in 16 KB stays 100 MB stay of 437") {
  enum { each = 780, count = 437 * mb / each, group = 16 * kb / each };
  void** const blocks = table(count, sizeof *blocks);
  have_two_threads();
  begin();
  for (size_t i = 0; i < count; ++i) blocks[i] = take(each);
  size_t left = 0;
  for (size_t i = 0; i < count; ++i) {
    if (i % group != 0) {
      drop(blocks[i]);
    } else {
      left += each;
    }
  }
  heartbeat(settle);
  const size_t now = resident();
  report_figure("live %zu MB", left / mb);
  expect_at_most("MB that stay", (double)now / mb, (Bound){100, 450});
}

// Untouched memory makes no peak.
CHECK("an untouched table costs nothing") {
  enum { rounds = 30, bytes = 512 * mb };
  begin();
  uint64_t longest = 0;
  const uint64_t since = nanoseconds();
  size_t most = 0;
  for (int round = 0; round < rounds; ++round) {
    const uint64_t before = nanoseconds();
    char* const p = calloc(1, bytes);
    REQUIRE(p != NULL, "calloc is null");
    REQUIRE(p[0] == 0 && p[bytes - 1] == 0, "calloc is not zero");
    if (resident() > most) most = resident();
    free(opaque_pointer(p));
    const uint64_t taken = nanoseconds() - before;
    if (taken > longest) longest = taken;
  }
  report_figure("%d times calloc and free of 512 MB: %lu us each, %lu us at worst, %zu KB resident",
                rounds, (unsigned long)((nanoseconds() - since) / rounds / 1000),
                (unsigned long)(longest / 1000), most / kb);
  expect_at_most("MB resident", (double)most / mb, goal(8));
}

CHECK("a table is dropped") {
  enum { bytes = 128 * mb };
  have_two_threads();
  begin();
  for (int round = 0; round < 3; ++round) {
    void* const p = take_live(bytes);
    const uint64_t before = nanoseconds();
    free(p);
    report_figure("the free of 128 MB takes %lu us",
                  (unsigned long)(nanoseconds() - before) / 1000);
    live -= bytes;
  }
  idle(settle);
  expect_memory(none, goal(0.1));
}

// ---- across threads ----

enum { body_threads = 8, bodies = 400, bodies_at_a_time = 24, nodes_of_body = 400 };

// A request: a buffer that doubles as its body arrives, and what was parsed of it.
typedef struct Request {
  char* body;
  size_t length;
  void* nodes[nodes_of_body];
  size_t bytes;
} Request;

static void begin_request(Request* request, uint64_t* state) {
  const size_t whole = (size_t)256 << next_random(state) % 12;
  request->body = NULL;
  request->length = request->bytes = 0;
  for (size_t room = 256; room <= whole; room *= 2) {
    request->body = realloc(request->body, room);
    REQUIRE(request->body != NULL, "realloc is null");
    memset(request->body + request->length, 1, room - request->length);
    request->length = room;
  }
  for (size_t i = 0; i < nodes_of_body; ++i) {
    const size_t bytes = between(state, 24, 400);
    request->nodes[i] = take(bytes);
    request->bytes += bytes;
  }
  request->bytes += request->length;
  grow_live(request->bytes);
}

static void end_request(Request* request) {
  for (size_t i = 0; i < nodes_of_body; ++i) drop(request->nodes[i]);
  drop(request->body);
  live -= request->bytes;
  request->body = NULL;
}

static void* serve_bodies(void* argument) {
  Request* const requests = argument;
  uint64_t state = (uintptr_t)argument;
  for (int i = 0; i < bodies; ++i) {
    Request* const request = &requests[next_random(&state) % bodies_at_a_time];
    if (request->body != NULL) end_request(request);
    begin_request(request, &state);
  }
  for (int i = 0; i < bodies_at_a_time; ++i) {
    if (requests[i].body != NULL) end_request(&requests[i]);
  }
  return wait_for_ever(NULL);
}

CHECK("after request bodies 12 % stays") {
  Request* const requests = table(body_threads * bodies_at_a_time, sizeof *requests);
  begin();
  for (size_t i = 0; i < body_threads; ++i) start(1, serve_bodies, requests + i * bodies_at_a_time);
  await_done(body_threads);
  heartbeat(settle);
  expect_memory((Bound){1.5, 1.8}, goal(0.12));
}

// Blocks on their way from allocating threads to freeing ones.
enum { way_capacity = 65536 };
typedef struct Way {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  size_t first, count;
  size_t bytes, most_bytes;
  unsigned producers;  // not finished yet
  struct {
    void* at;
    size_t bytes;
  } blocks[way_capacity];
} Way;
static Way way = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void send(void* p, size_t bytes) {
  pthread_mutex_lock(&way.mutex);
  while (way.bytes + bytes > way.most_bytes || way.count == way_capacity)
    pthread_cond_wait(&way.changed, &way.mutex);
  const size_t at = (way.first + way.count++) % way_capacity;
  way.blocks[at].at = p;
  way.blocks[at].bytes = bytes;
  way.bytes += bytes;
  pthread_cond_broadcast(&way.changed);
  pthread_mutex_unlock(&way.mutex);
}

// Null when no more will come.
static void* receive(size_t* bytes) {
  void* p = NULL;
  pthread_mutex_lock(&way.mutex);
  while (way.count == 0 && way.producers != 0) pthread_cond_wait(&way.changed, &way.mutex);
  if (way.count != 0) {
    p = way.blocks[way.first].at;
    *bytes = way.blocks[way.first].bytes;
    way.first = (way.first + 1) % way_capacity;
    --way.count;
    way.bytes -= *bytes;
    pthread_cond_broadcast(&way.changed);
  }
  pthread_mutex_unlock(&way.mutex);
  return p;
}

static void end_producer(void) {
  pthread_mutex_lock(&way.mutex);
  --way.producers;
  pthread_cond_broadcast(&way.changed);
  pthread_mutex_unlock(&way.mutex);
}

typedef struct Load {
  size_t least, most, total;
} Load;

static void* produce(void* argument) {
  const Load* const load = argument;
  static atomic_uint number;
  uint64_t state = 100 + atomic_fetch_add(&number, 1);
  for (size_t sent = 0; sent < load->total;) {
    const size_t bytes = between(&state, load->least, load->most);
    void* const p = take_live(bytes);
    sent += bytes;
    send(p, bytes);
  }
  end_producer();
  return wait_for_ever(NULL);
}

static void* consume(void* unused) {
  size_t bytes = 0;
  for (void* p = receive(&bytes); p != NULL; p = receive(&bytes)) {
    drop_live(p, bytes);
  }
  return wait_for_ever(unused);
}

CHECK("one thread frees what 32 allocate") {
  enum { producers = 32 };
  static const Load load = {64, 8000, 20 * mb};
  memset(&way.blocks, 0, sizeof way.blocks);
  way.producers = producers;
  way.most_bytes = 24 * mb;
  begin();
  start(producers, produce, (void*)&load);
  start(1, consume, NULL);
  await_done(producers + 1);
  idle(settle);
  expect_memory((Bound){2, 3.6}, (Bound){0.25, 0.45});
}

CHECK("200 threads that free keep 100 KB each") {
  enum { producers = 8, consumers = 200 };
  static const Load load = {2 * kb, 48 * kb, 250 * mb};
  memset(&way.blocks, 0, sizeof way.blocks);
  way.producers = producers;
  way.most_bytes = 64 * mb;
  begin();
  start(producers, produce, (void*)&load);
  start(consumers, consume, NULL);
  await_done(producers + consumers);
  idle(settle);
  expect_at_most("KB of each thread that freed", (double)resident() / consumers / kb, goal(100));
  expect_memory(none, none);
}

static void* produce_for_one(void* argument) {
  void** const blocks = argument;
  enum { count = 300 * mb / 544 };
  uint64_t state = 5;
  for (size_t i = 0; i < count; ++i) blocks[i] = take_live(between(&state, 64, 1024));
  return wait_for_ever(NULL);
}

CHECK("of what a sleeping thread allocated 10 % stays") {
  enum { count = 300 * mb / 544 };
  void** const blocks = table(count, sizeof *blocks);
  begin();
  start(1, produce_for_one, blocks);
  await_done(1);
  for (size_t i = 0; i < count; ++i) drop(blocks[i]);
  idle(settle);
  expect_memory(none, goal(0.1));
}

static void* free_16_mb(void* unused) {
  enum { count = 16 * mb / 544 };
  void** const blocks = take(count * sizeof *blocks);
  uint64_t state = 6;
  for (size_t i = 0; i < count; ++i) blocks[i] = take_live(between(&state, 64, 1024));
  static atomic_uint ready;
  atomic_fetch_add(&ready, 1);
  while (atomic_load(&ready) < 16) idle(1);
  for (size_t i = 0; i < count; ++i) drop(blocks[i]);
  drop(blocks);
  return wait_for_ever(unused);
}

CHECK("16 blocked workers keep 12 %") {
  begin();
  start(16, free_16_mb, NULL);
  await_done(16);
  idle(settle);
  expect_memory(none, goal(0.12));
}

enum { job_bytes = 25 * mb, most_nodes = job_bytes / 100 };
static pthread_mutex_t job_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t job_changed = PTHREAD_COND_INITIALIZER;
static unsigned job_of, jobs_done;
static void** nodes_of_job;

// Nodes of a document, freed in another order than allocated.
static void do_job(unsigned number) {
  uint64_t state = number;
  size_t count = 0;
  for (size_t bytes = 0; bytes < job_bytes; ++count) {
    const size_t each = between(&state, 24, 416);
    nodes_of_job[count] = take(each);
    bytes += each;
  }
  for (; count != 0; --count) {
    const size_t chosen = next_random(&state) % count;
    drop(nodes_of_job[chosen]);
    nodes_of_job[chosen] = nodes_of_job[count - 1];
  }
}

enum { pool = 20, jobs = 60, nobody = ~0U };

static void* serve_jobs(void* argument) {
  const unsigned self = (unsigned)(uintptr_t)argument;
  pthread_mutex_lock(&job_mutex);
  for (;;) {
    while (job_of != self) pthread_cond_wait(&job_changed, &job_mutex);
    do_job(jobs_done);
    ++jobs_done;
    job_of = nobody;
    pthread_cond_broadcast(&job_changed);
  }
  return NULL;
}

CHECK("a pool of 20 threads needs twice the memory of a job") {
  uint64_t state = 7;
  job_of = nobody;
  nodes_of_job = table(most_nodes, sizeof *nodes_of_job);
  begin();
  for (uintptr_t i = 0; i < pool; ++i) start(1, serve_jobs, (void*)i);
  for (unsigned job = 0; job < jobs; ++job) {
    pthread_mutex_lock(&job_mutex);
    job_of = (unsigned)(next_random(&state) % pool);
    pthread_cond_broadcast(&job_changed);
    while (jobs_done == job) pthread_cond_wait(&job_changed, &job_mutex);
    pthread_mutex_unlock(&job_mutex);
  }
  idle(settle);
  most_live = job_bytes;
  expect_memory((Bound){2, 2.3}, none);
  expect_at_most("MB that stay", (double)resident() / mb, (Bound){20, 40});
}

// Threads that run one at a time and share a bounded cache.
enum { cache_slots = 150000, requests_each = 60, interpreter_threads = 25 };
static struct {
  void* at;
  size_t bytes;
} cache[cache_slots];
static pthread_mutex_t interpreter = PTHREAD_MUTEX_INITIALIZER;

static void* interpret(void* argument) {
  enum { objects = 3000, kept = 600 };
  void* at[objects];
  size_t bytes[objects];
  uint64_t state = 1000 + (uintptr_t)argument;
  for (int request = 0; request < requests_each; ++request) {
    pthread_mutex_lock(&interpreter);
    for (int i = 0; i < objects; ++i) {
      bytes[i] = random_size(&state, 4000) + 16;
      at[i] = take_live(bytes[i]);
    }
    for (int i = 0; i < objects; ++i) {
      size_t slot = cache_slots;
      if (i % (objects / kept) == 0) slot = next_random(&state) % cache_slots;
      if (slot != cache_slots && cache[slot].at != NULL) {
        drop_live(cache[slot].at, cache[slot].bytes);
      }
      if (slot != cache_slots) {
        cache[slot].at = at[i];
        cache[slot].bytes = bytes[i];
      } else {
        drop_live(at[i], bytes[i]);
      }
    }
    pthread_mutex_unlock(&interpreter);
    idle((unsigned)between(&state, 0, 3));
  }
  return wait_for_ever(NULL);
}

CHECK("threads of an interpreter share memory") {
  memset(cache, 0, sizeof cache);
  begin();
  for (uintptr_t i = 0; i < interpreter_threads; ++i) start(1, interpret, (void*)i);
  await_done(interpreter_threads);
  idle(settle);
  expect_at_most("what stays by what is live in the end", (double)resident() / (double)live,
                 (Bound){1.8, 2.7});
  expect_memory((Bound){1.4, 2.6}, none);
}

enum { big_slots = 12000 };
static struct {
  void* at;
  size_t bytes;
  pthread_mutex_t mutex;
} big_cache[big_slots];

static void* replace_in_cache(void* argument) {
  uint64_t state = 2000 + (uintptr_t)argument;
  for (int i = 0; i < 30000; ++i) {
    const size_t slot = next_random(&state) % big_slots;
    pthread_mutex_lock(&big_cache[slot].mutex);
    if (big_cache[slot].at != NULL) {
      drop_live(big_cache[slot].at, big_cache[slot].bytes);
    }
    big_cache[slot].bytes = between(&state, 4 * kb, 36 * kb);
    big_cache[slot].at = take_live(big_cache[slot].bytes);
    pthread_mutex_unlock(&big_cache[slot].mutex);
  }
  return NULL;
}

CHECK("a bounded cache needs a quarter more") {
  for (size_t i = 0; i < big_slots; ++i) pthread_mutex_init(&big_cache[i].mutex, NULL);
  begin();
  for (uintptr_t i = 0; i < 4; ++i) start(1, replace_in_cache, (void*)i);
  join_all();
  expect_memory((Bound){1.25, 1.4}, none);
}

static pthread_barrier_t together;
static atomic_size_t kept_blocks;
enum { most_kept = 400000 };
static void** kept_at;

static void* do_part_of_request(void* argument) {
  enum { count = 1 * mb / 200 };
  void** const blocks = take(count * sizeof *blocks);
  size_t bytes[64];
  uint64_t state = 3000 + (uintptr_t)argument;
  for (size_t i = 0; i < COUNT_OF(bytes); ++i) bytes[i] = between(&state, 16, 400);
  size_t all = 0;
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = take(bytes[i % 64]);
    all += bytes[i % 64];
  }
  grow_live(all);
  pthread_barrier_wait(&together);
  for (size_t i = 0; i < count; ++i) {
    if (i % 50 == 0) {
      kept_at[atomic_fetch_add(&kept_blocks, 1)] = blocks[i];
      all -= bytes[i % 64];
    } else {
      drop(blocks[i]);
    }
  }
  drop(blocks);
  live -= all;
  return NULL;
}

CHECK("pools for each request need twice what is live") {
  kept_at = table(most_kept, sizeof *kept_at);
  begin();
  pthread_barrier_init(&together, NULL, 4);
  for (uintptr_t request = 0; request < 200; ++request) {
    for (uintptr_t i = 0; i < 4; ++i) start(1, do_part_of_request, (void*)(4 * request + i));
    join_all();
  }
  expect_memory(goal(2), none);
}

static void* take_1000_bytes(void* unused) {
  void* const p = take(1000);
  pthread_barrier_wait(&together);
  drop(p);
  return unused;
}

CHECK("2000 threads that ended keep 16 MB") {
  enum { threads = 2000 };
  begin();
  pthread_barrier_init(&together, NULL, threads);
  start(threads, take_1000_bytes, NULL);
  join_all();
  idle(settle);
  expect_at_most("MB that stay", (double)resident() / mb, goal(16));
}

// ---- across sizes ----

// Sizes in turn: each fills this much, then frees all blocks but one in `kept`.
static void change_sizes(size_t kept, Bound bound) {
  enum { bytes = 240 * mb };
  static const size_t sizes[] = {1000, 300, 3000, 600, 6000, 2000};
  void** const blocks = table(bytes / 300, sizeof *blocks);
  uint64_t state = 8;
  begin();
  for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
    const size_t count = bytes / sizes[i];
    for (size_t k = 0; k < count; ++k) blocks[k] = take(sizes[i]);
    grow_live(count * sizes[i]);
    for (size_t k = 0; k < count; ++k) {
      if (kept != 0 && next_random(&state) % kept == 0) continue;
      drop_live(blocks[k], sizes[i]);
    }
  }
  expect_memory(bound, none);
}

CHECK("sizes that change reuse pages") { change_sizes(0, goal(1.2)); }
CHECK("sizes that change reuse pages though some blocks stay") {
  change_sizes(20, (Bound){1.5, 2.6});
}

int main(int argc, char** argv) {
  const char* const wanted = getenv("TSMALLOC_TEST_TIMES");
  is_timed = wanted != NULL && strcmp(wanted, "0") != 0;
  return run_checks(argc, argv);
}
