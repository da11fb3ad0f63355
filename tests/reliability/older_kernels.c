// Kernels that lack a system call, or one of its flags: seccomp refuses it, with each of the errors
// that kernels and sandboxes use. The program must work all the same, and return memory to the
// system. (faults/ tests calls that fail for lack of memory.)
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "programs/support/seccomp.h"

int malloc_trim(size_t keep_bytes);

// ---- what is refused ----

enum { most_rules = 8, any_argument = -1, no_filter = 77 };

// Refuses a system call: entirely, or if argument number `argument` has one of the bits `value`,
// or, without bits, is at least that value.
typedef struct Rule {
  int call;
  int argument;
  bool are_bits;
  unsigned value;
  int error;  // 0: the case's own
} Rule;

typedef struct World {
  bool from_start;   // also refused to the dynamic linker and the library's first calls
  bool keeps_freed;  // without the call, memory cannot be returned
  Rule rules[most_rules];
} World;

// Numbers are the same on all processors from 424 (Linux 5.1) on.
enum { first_call_after_5_4 = 436, first_advice_after_5_4 = 22 };

static const World worlds[] = {
    {true,
     false,
     {{0, any_argument, false, first_call_after_5_4, ENOSYS},
      {SYS_madvise, 2, false, first_advice_after_5_4, EINVAL},
      {SYS_mremap, 3, true, 4 /* MREMAP_DONTUNMAP */, EINVAL}}},
    {true, false, {{SYS_mremap, any_argument, false, 0, 0}}},
    {true, false, {{SYS_madvise, 2, false, MADV_HUGEPAGE, 0}}},
    {true, true, {{SYS_madvise, any_argument, false, 0, 0}}},
    {true, false, {{SYS_getrandom, any_argument, false, 0, 0}}},
    {true,
     false,
     {{SYS_mincore, any_argument, false, 0, 0}, {SYS_mremap, any_argument, false, 0, ENOMEM}}},
    {false, false, {{SYS_openat, any_argument, false, 0, 0}}},
    {false, false, {{SYS_pread64, any_argument, false, 0, 0}}},
};

static struct sock_filter filter[8 + 4 * most_rules];
static unsigned short filter_length;

static void add(unsigned code, unsigned value, unsigned char if_true, unsigned char if_false) {
  filter[filter_length++] = (struct sock_filter){(unsigned short)code, if_true, if_false, value};
}

// (On little endian the lower half of an argument is at its address.)
static void add_rule(const Rule* rule, int error) {
  enum { load = BPF_LD | BPF_W | BPF_ABS };
  const unsigned refusal = SECCOMP_RET_ERRNO | (unsigned)(rule->error != 0 ? rule->error : error);
  const unsigned test = BPF_JMP | BPF_K | (rule->are_bits ? BPF_JSET : BPF_JGE);
  add(load, offsetof(struct seccomp_data, nr), 0, 0);
  if (rule->call == 0) {
    add(test, rule->value, 0, 1);
  } else if (rule->argument == any_argument) {
    add(BPF_JMP | BPF_K | BPF_JEQ, (unsigned)rule->call, 0, 1);
  } else {
    add(BPF_JMP | BPF_K | BPF_JEQ, (unsigned)rule->call, 0, 3);
    add(load, (unsigned)(offsetof(struct seccomp_data, args) + 8 * (size_t)rule->argument), 0, 0);
    add(test, rule->value, 0, 1);
  }
  add(BPF_RET | BPF_K, refusal, 0, 0);
}

static void refuse(const World* world, int error) {
  add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
  add(BPF_JMP | BPF_K | BPF_JEQ, OWN_ARCHITECTURE, 1, 0);
  add(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
  for (const Rule* rule = world->rules; rule->call != 0 || rule->value != 0; ++rule)
    add_rule(rule, error);
  add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
  if (set_filter(filter, filter_length, 0) != 0) _exit(no_filter);
}

// The first rule is in force: the system call that it names fails.
static void expect_refused(const World* world, int error) {
  const Rule* rule = &world->rules[0];
  const long call = rule->call != 0 ? rule->call : (long)rule->value;
  const long argument = rule->argument == any_argument ? 0 : (long)rule->value;
  const long result = syscall(call, 0L, 0L, rule->argument == 2 ? argument : 0, 0L, 0L, 0L);
  const int expected = rule->error != 0 ? rule->error : error;
  REQUIRE(result == -1 && errno == expected, "call %ld returned %ld, errno %d", call, result,
          errno);
}

// ---- the program ----

// Opened before files may be refused.
static int statm = -1;

static size_t resident_pages(void) {
  char text[128] = "";
  REQUIRE(lseek(statm, 0, SEEK_SET) == 0 && read(statm, text, sizeof text - 1) > 0,
          "/proc/self/statm: %s", strerror(errno));
  char* rest = NULL;
  (void)strtoul(text, &rest, 10);
  return strtoul(rest, NULL, 10);
}

enum { page = 4096, small_blocks = 3000, large_blocks = 3, large_bytes = 5 << 20, probes = 4 };

static void stamp(char* block, size_t begin, size_t end) {
  for (size_t at = begin; at < end; at += page) memcpy(block + at, &at, sizeof at);
}
static void expect_stamped(const char* block, size_t end) {
  for (size_t at = 0; at < end; at += page)
    REQUIRE(memcmp(block + at, &at, sizeof at) == 0, "byte %zu was lost", at);
}

// Filled blocks long enough for huge pages: an allocator may check how much of them was touched
// before it asks for huge pages.
static void fill_long_blocks(void) {
  char* block[probes];
  for (int i = 0; i < probes; ++i) {
    block[i] = malloc(large_bytes);
    REQUIRE(block[i] != NULL, "malloc is null");
    stamp(block[i], 0, large_bytes);
  }
  for (int i = 0; i < probes; ++i) free(block[i]);
}

// Blocks of many sizes; those that grow are moved, by remapping where possible.
static void* work(void* seed) {
  uint64_t random = *(uint64_t*)seed;
  static __thread char* small[small_blocks];
  char* large[large_blocks];
  for (size_t i = 0; i < small_blocks; ++i) {
    const size_t bytes = 100 + next_random(&random) % 2000;
    small[i] = malloc(bytes);
    REQUIRE(small[i] != NULL, "malloc(%zu) is null", bytes);
    fill(small[i], 100, i);
  }
  for (size_t i = 0; i < large_blocks; ++i) {
    size_t bytes = large_bytes / 8;
    large[i] = malloc(bytes);
    REQUIRE(large[i] != NULL, "malloc(%zu) is null", bytes);
    stamp(large[i], 0, bytes);
    for (; bytes < large_bytes; bytes *= 2) {
      large[i] = realloc(large[i], 2 * bytes);
      REQUIRE(large[i] != NULL, "realloc to %zu bytes is null", 2 * bytes);
      stamp(large[i], bytes, 2 * bytes);
    }
  }
  for (size_t i = 0; i < small_blocks; ++i) {
    EXPECT_FILLED(small[i], 100, i);
    free(small[i]);
  }
  for (size_t i = 0; i < large_blocks; ++i) {
    expect_stamped(large[i], large_bytes);
    free(large[i]);
  }
  return NULL;
}

static void use_memory(const World* world) {
  fill_long_blocks();
  uint64_t seeds[2] = {1, 2};
  const pthread_t thread = start_thread(work, &seeds[1]);
  work(&seeds[0]);
  pthread_join(thread, NULL);
  const pid_t child = fork();
  if (child == 0) {
    work(&seeds[0]);
    end_check();
  }
  const int status = status_of(child);
  EXPECT(status == 0, "the child ended with wait status %d", status);

  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const size_t most = (size_t)usage.ru_maxrss * 1024;
  malloc_trim(0);
  const size_t left = resident_pages() * page;
  // What libc's own malloc keeps for its threads is not tested.
  const bool may_keep = world->keeps_freed || strncmp(tested_library(), "libc.", 5) == 0;
  EXPECT(may_keep || left < most / 4, "%zu of %zu MB stay resident", left >> 20, most >> 20);
}

// ---- the checks ----

static const int errors[] = {ENOSYS, EINVAL, EPERM};
static const char* const inside = "--inside";

// The child for one case and error: argv is --inside, the case's number, the error.
static void run_inside(const World* world, int error) {
  expect_refused(world, error);
  statm = world->from_start ? open("/proc/self/statm", O_RDONLY) : statm;
  use_memory(world);
  end_check();
}

static void try_world(size_t number) {
  const World* world = &worlds[number];
  const bool has_errors_of_its_own = world->rules[0].error != 0;
  for (size_t i = 0; i < (has_errors_of_its_own ? 1 : COUNT_OF(errors)); ++i) {
    const pid_t child = fork();
    if (child == 0) {
      statm = open("/proc/self/statm", O_RDONLY);
      refuse(world, errors[i]);
      if (!world->from_start) run_inside(world, errors[i]);
      char numbers[2][12];
      snprintf(numbers[0], sizeof numbers[0], "%zu", number);
      snprintf(numbers[1], sizeof numbers[1], "%d", errors[i]);
      execl("/proc/self/exe", "older_kernels", inside, numbers[0], numbers[1], (char*)NULL);
      _exit(127);
    }
    const int status = status_of(child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == no_filter)
      skip_check("this system grants no seccomp filter");
    EXPECT(status == 0, "%s: wait status %d", strerror(errors[i]), status);
  }
}

CHECK("the system is Linux 5.4") { try_world(0); }
CHECK("mremap is refused") { try_world(1); }
CHECK("advice about huge pages is refused") { try_world(2); }
CHECK("madvise is refused") { try_world(3); }
CHECK("getrandom is refused") { try_world(4); }
CHECK("mincore is refused, and mremap for want of memory") { try_world(5); }
CHECK("files are refused") { try_world(6); }
CHECK("reading the page map is refused") { try_world(7); }

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], inside) == 0)
    run_inside(&worlds[strtoul(argv[2], NULL, 10)], (int)strtol(argv[3], NULL, 10));
  return run_checks(argc, argv);
}
