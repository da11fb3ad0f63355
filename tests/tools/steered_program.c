// A program that is purged and steered from outside. Its first argument says what it does:
//
//   obey            runs a command per line: `stats`; `get OPTION`; `work`, which refills bins;
//                   `check`, whether its blocks are intact
//   headless [US]   the same, in a thread that outlives the first one, which ends this many
//                   microseconds later
//   large           allocates only large blocks
//   waits SECONDS   waits in many system calls while two threads allocate and check; with 0, until
//                   its input ends. The exit status says whether a wait ended too early, failed, or
//                   memory changed
//   lock, filter, strict, vfork
//                   with locked memory; in a sandbox that allows everything, or almost nothing;
//                   while the child of a vfork lives
//
// It has freed 49 of 50 MB of large blocks when it prints "ready".
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <tsmalloc/tsmalloc.h>
#include <unistd.h>

enum { large_count = 50, large_bytes = 1 << 20, small_count = 10000 };

static unsigned char* larges[large_count];
static unsigned char* smalls[small_count];

static void say(const char* text) {
  if (write(STDOUT_FILENO, text, strlen(text)) < 0) abort();
}

static int is_filled(const unsigned char* block, size_t bytes, unsigned char with) {
  for (size_t i = 0; i < bytes; ++i) {
    if (block[i] != with) return 0;
  }
  return 1;
}

static size_t small_bytes(size_t i) { return 1 + i % 3000; }

static void fill(void) {
  for (size_t i = 0; i < large_count; ++i) {
    larges[i] = malloc(large_bytes);
    memset(larges[i], 7, large_bytes);
  }
  for (size_t i = 0; i < small_count; ++i) {
    smalls[i] = malloc(small_bytes(i));
    memset(smalls[i], (int)(i & 0xff), small_bytes(i));
  }
  for (size_t i = 1; i < large_count; ++i) free(larges[i]);
  for (size_t i = 0; i < small_count; i += 2) free(smalls[i]);
}

static int is_whole(void) {
  for (size_t i = 1; i < small_count; i += 2) {
    if (!is_filled(smalls[i], small_bytes(i), (unsigned char)i)) return 0;
  }
  return is_filled(larges[0], large_bytes, 7);
}

static void work(void) {
  enum { count = 20000 };
  static void* blocks[count];
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = malloc(1 + i % 500);
    memset(blocks[i], 1, 1 + i % 500);
  }
  for (size_t i = 0; i < count; ++i) free(blocks[i]);
}

static void obey(void) {
  char line[100];
  while (fgets(line, sizeof line, stdin) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    char value[64] = "no such option";
    if (strcmp(line, "stats") == 0) {
      ts_stats_write(STDOUT_FILENO, TSMALLOC_JSON);
    } else if (strncmp(line, "get ", 4) == 0) {
      ts_option_get(line + 4, value, sizeof value);
      say(value);
      say("\n");
    } else if (strcmp(line, "work") == 0) {
      work();
      say("done\n");
    } else if (strcmp(line, "check") == 0) {
      say(is_whole() ? "whole\n" : "damaged\n");
    }
  }
}

static void* obey_and_exit(void* ignored) {
  obey();
  exit(ignored != NULL);
}

static void obey_without_first_thread(useconds_t end_us) {
  pthread_t thread;
  pthread_create(&thread, NULL, obey_and_exit, NULL);
  usleep(end_us);
  pthread_exit(NULL);
}

static void allocate_large(void) {
  for (;;) {
    for (size_t i = 1; i < large_count; ++i) larges[i] = malloc(large_bytes / 20 * i);
    for (size_t i = 1; i < large_count; ++i) free(larges[i]);
    usleep(1000);
  }
}

// ---- waits ----

static atomic_int faults;

static void expect(int is_so, const char* what, int error) {
  if (is_so) return;
  if (atomic_fetch_add(&faults, 1) < 10) fprintf(stderr, "%s: %s\n", what, strerror(error));
}

static const long wait_ns = 30 * 1000 * 1000;

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static struct timespec later(clockid_t clock) {
  struct timespec at;
  clock_gettime(clock, &at);
  at.tv_nsec += wait_ns;
  at.tv_sec += at.tv_nsec / 1000000000;
  at.tv_nsec %= 1000000000;
  return at;
}

static void by_nanosleep(int* pipe_ends) {
  (void)pipe_ends;
  const struct timespec wait = {0, wait_ns};
  expect(nanosleep(&wait, NULL) == 0, "nanosleep", errno);
}
static void by_clock(int* pipe_ends) {
  (void)pipe_ends;
  const struct timespec at = later(CLOCK_MONOTONIC);
  const int error = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
  expect(error == 0, "clock_nanosleep", error);
}
static void by_poll(int* pipe_ends) {
  struct pollfd end = {pipe_ends[0], POLLIN, 0};
  expect(poll(&end, 1, wait_ns / 1000000) == 0, "poll", errno);
}
static void by_select(int* pipe_ends) {
  fd_set set;
  FD_ZERO(&set);
  FD_SET(pipe_ends[0], &set);
  struct timeval wait = {0, wait_ns / 1000};
  expect(select(pipe_ends[0] + 1, &set, NULL, NULL, &wait) == 0, "select", errno);
}
static void by_epoll(int* pipe_ends) {
  (void)pipe_ends;
  static _Thread_local int set = -1;
  if (set < 0) set = epoll_create1(0);
  struct epoll_event event;
  expect(epoll_wait(set, &event, 1, wait_ns / 1000000) == 0, "epoll_wait", errno);
}
static void by_condition(int* pipe_ends) {
  (void)pipe_ends;
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  const struct timespec at = later(CLOCK_REALTIME);
  pthread_mutex_lock(&mutex);
  const int error = pthread_cond_timedwait(&condition, &mutex, &at);
  pthread_mutex_unlock(&mutex);
  expect(error == ETIMEDOUT, "pthread_cond_timedwait", error);
}

// A socket with a timeout in both directions; its other end neither sends nor receives.
static int socket_with_timeout(void) {
  static _Thread_local int ends[2] = {-1, -1};
  if (ends[0] >= 0) return ends[0];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) abort();
  const struct timeval wait = {0, wait_ns / 1000};
  setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
  return ends[0];
}
static void by_recv(int* pipe_ends) {
  (void)pipe_ends;
  char byte;
  expect(recv(socket_with_timeout(), &byte, 1, 0) < 0 && errno == EAGAIN, "recv", errno);
}
static void by_read(int* pipe_ends) {
  (void)pipe_ends;
  char byte;
  expect(read(socket_with_timeout(), &byte, 1) < 0 && errno == EAGAIN, "read", errno);
}
static void by_send(int* pipe_ends) {
  (void)pipe_ends;
  static const char bytes[1 << 16];
  const int socket = socket_with_timeout();
  while (send(socket, bytes, sizeof bytes, MSG_DONTWAIT) > 0) continue;
  expect(send(socket, bytes, 1, 0) < 0 && errno == EAGAIN, "send", errno);
}
static void by_accept(int* pipe_ends) {
  (void)pipe_ends;
  static _Thread_local int listener = -1;
  if (listener < 0) {
    const struct sockaddr any = {AF_UNIX, ""};
    const struct timeval wait = {0, wait_ns / 1000};
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    if (bind(listener, &any, sizeof any.sa_family) != 0 || listen(listener, 1) != 0) abort();
  }
  expect(accept(listener, NULL, NULL) < 0 && errno == EAGAIN, "accept", errno);
}

static void* wait_on_and_on(void* wait) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) abort();
  void (*const one_wait)(int*) = *(void (**)(int*))wait;
  for (;;) {
    const double begin = now();
    one_wait(pipe_ends);
    expect(now() - begin >= 0.0299, "a wait was too short", 0);
  }
  return NULL;
}

static void* read_on_and_on(void* ignored) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) abort();
  for (char byte = 0;; ++byte) {
    char got = 1;
    expect(write(pipe_ends[1], &byte, 1) == 1, "write", errno);
    expect(read(pipe_ends[0], &got, 1) == 1 && got == byte, "read", errno);
    usleep(500);
  }
  return ignored;
}

static void* allocate_on_and_on(void* argument) {
  enum { count = 5000 };
  static _Thread_local struct {
    unsigned char* block;
    size_t bytes;
  } kept[count];
  uint64_t state = (uintptr_t)argument;
  for (uint64_t turn = 1;; ++turn) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const size_t i = (state >> 40) % count;
    if (kept[i].block != NULL) {
      expect(is_filled(kept[i].block, kept[i].bytes, (unsigned char)i), "a block changed", 0);
      free(kept[i].block);
      kept[i].block = NULL;
    } else {
      kept[i].bytes = 1 + (state >> 33) % (i % 50 == 0 ? 500000 : 3000);
      kept[i].block = malloc(kept[i].bytes);
      memset(kept[i].block, (int)(i & 0xff), kept[i].bytes);
    }
    if (turn % 50000 != 0) continue;
    for (size_t k = 0; k < count; ++k) {
      free(kept[k].block);
      kept[k].block = NULL;
    }
    usleep(20000);
  }
  return NULL;
}

static int wait_for_seconds(double seconds) {
  static void (*const waits[])(int*) = {by_nanosleep, by_clock, by_poll, by_select, by_epoll,
                                        by_condition, by_recv,  by_read, by_send,   by_accept};
  pthread_t thread;
  for (size_t i = 0; i < sizeof waits / sizeof *waits; ++i)
    pthread_create(&thread, NULL, wait_on_and_on, (void*)&waits[i]);
  pthread_create(&thread, NULL, read_on_and_on, NULL);
  for (uintptr_t i = 1; i <= 2; ++i) pthread_create(&thread, NULL, allocate_on_and_on, (void*)i);
  char byte;
  while (seconds == 0 && read(STDIN_FILENO, &byte, 1) == 1) continue;
  for (const double end = now() + seconds; now() < end;) usleep(50000);
  return faults == 0 ? 0 : 1;
}

// ---- obstacles ----

static void allow_everything(void) {
  struct sock_filter rule = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog program = {1, &rule};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) abort();
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) abort();
}

int main(int argc, char** argv) {
  const char* const what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "lock") == 0 && mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return 77;
  fill();
  if (strcmp(what, "filter") == 0) allow_everything();
  say("ready\n");
  if (strcmp(what, "obey") == 0) {
    obey();
    return 0;
  }
  if (strcmp(what, "headless") == 0)
    obey_without_first_thread(argc > 2 ? (useconds_t)atoi(argv[2]) : 0);
  if (strcmp(what, "large") == 0) allocate_large();
  if (strcmp(what, "waits") == 0 && argc > 2) return wait_for_seconds(strtod(argv[2], NULL));
  if (strcmp(what, "strict") == 0) prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
  if (strcmp(what, "vfork") == 0) {
    if (vfork() == 0) {
      sleep(30);
      _exit(0);
    }
  }
  char line;
  while (read(STDIN_FILENO, &line, 1) == 1) continue;
  return 0;
}
