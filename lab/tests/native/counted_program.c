/* What the counted libraries are tested on: a program of known calls that makes no others. The first
 * argument says which; the second is a number.
 *
 *   exchange N   three threads at once allocate N blocks each, and free N blocks of their neighbour
 *   alternate N  N blocks, every second one freed; a picture; all freed
 *   busy N       N pictures while two threads allocate and free
 *   end WAY      two blocks, then the process ends by: exit, _exit, _Exit, kill, fork, fork_exit,
 *                vfork, exec, cancelled (a thread that is being cancelled draws a picture and exits)
 *   threads N    N threads after one another with one block each */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((weak)) void ts_heap_snapshot(const char* label);

enum { max_blocks = 200000, exchangers = 3 };

static void* blocks[exchangers][max_blocks];
static int block_count;
static pthread_barrier_t barrier;
static atomic_bool is_over;

static void picture(const char* label) {
  if (ts_heap_snapshot) ts_heap_snapshot(label);
}

static void* exchange(void* argument) {
  const intptr_t mine = (intptr_t)argument;
  for (int i = 0; i < block_count; ++i) blocks[mine][i] = malloc(16 + (size_t)(i % 20) * 16);
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < block_count; ++i) free(blocks[(mine + 1) % exchangers][i]);
  pthread_barrier_wait(&barrier);
  return NULL;
}

static void run_exchange(void) {
  pthread_t threads[exchangers];
  pthread_barrier_init(&barrier, NULL, exchangers);
  for (intptr_t i = 0; i < exchangers; ++i) pthread_create(&threads[i], NULL, exchange, (void*)i);
  for (int i = 0; i < exchangers; ++i) pthread_join(threads[i], NULL);
}

static void run_alternate(void) {
  for (int i = 0; i < block_count; ++i) blocks[0][i] = malloc(40);
  for (int i = 0; i < block_count; i += 2) free(blocks[0][i]);
  picture("half \"free\"\n");
  for (int i = 1; i < block_count; i += 2) free(blocks[0][i]);
}

static void* churn(void* argument) {
  void* held[64] = {0};
  unsigned random = (unsigned)(uintptr_t)argument + 1;
  while (!atomic_load(&is_over)) {
    random = random * 1664525U + 1013904223U;
    void** place = &held[random >> 26];
    free(*place);
    *place = malloc(1 + (random >> 8) % 3000);
    memset(*place, 0xff, 1);
  }
  for (int i = 0; i < 64; ++i) free(held[i]);
  return NULL;
}

static void run_busy(void) {
  pthread_t threads[2];
  for (intptr_t i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, churn, (void*)i);
  for (int i = 0; i < block_count; ++i) picture("busy");
  atomic_store(&is_over, 1);
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
}

static void* one_block(void* argument) {
  free(malloc(100));
  return argument;
}

static void run_threads(void) {
  for (int i = 0; i < block_count; ++i) {
    pthread_t thread;
    pthread_create(&thread, NULL, one_block, NULL);
    pthread_join(thread, NULL);
  }
}

static void await(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) abort();
}

static void* draw_and_exit(void* argument) {
  pthread_cancel(pthread_self()); /* acts at the next cancellation point */
  picture("cancelled");
  exit(0);
  return argument;
}

static void end_by(const char* way, char** argv) {
  free(malloc(10));
  if (strcmp(way, "_exit") == 0) _exit(0);
  if (strcmp(way, "_Exit") == 0) _Exit(0);
  if (strcmp(way, "kill") == 0) raise(SIGKILL);
  if (strcmp(way, "cancelled") == 0) {
    pthread_t thread;
    pthread_create(&thread, NULL, draw_and_exit, NULL);
    pthread_join(thread, NULL);
  }
  if (strcmp(way, "exec") == 0) {
    argv[2] = "exit";
    execv(argv[0], argv);
  }
  if (strcmp(way, "fork") == 0 || strcmp(way, "fork_exit") == 0) {
    const pid_t child = fork();
    if (child == 0) {
      for (int i = 0; i < 5; ++i) free(malloc(10));
      if (strcmp(way, "fork") == 0) _exit(0);
      exit(0);
    }
    await(child);
  }
  if (strcmp(way, "vfork") == 0) {
    const pid_t child = vfork();
    if (child == 0) _exit(0);
    await(child);
  }
  free(malloc(10));
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  block_count = atoi(argv[2]);
  if (strcmp(argv[1], "exchange") == 0) run_exchange();
  if (strcmp(argv[1], "alternate") == 0) run_alternate();
  if (strcmp(argv[1], "busy") == 0) run_busy();
  if (strcmp(argv[1], "threads") == 0) run_threads();
  if (strcmp(argv[1], "end") == 0) end_by(argv[2], argv);
  return 0;
}
