// Uses memory as its first argument says, prints "ready", and waits for a line.
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kb = 1024, mb = 1024 * kb };
enum { count = 40000 };

static void* blocks[count];

static void* filled(size_t bytes) {
  void* const p = malloc(bytes);
  if (p == NULL) abort();
  memset(p, 0x5a, bytes);
  return p;
}

// 40 MB in blocks of 1000 bytes, freed except for one in `stays`.
static void allocate(void) {
  for (int i = 0; i < count; ++i) blocks[i] = filled(1000);
}
static void free_but(int stays) {
  for (int i = 0; i < count; ++i) {
    if (i % stays != 0) free(blocks[i]);
  }
}

static void* use_and_end(void* ignored) {
  allocate();
  free_but(4);
  return ignored;
}
static void* wait_for_ever(void* ignored) {
  allocate();
  atomic_int* const is_done = ignored;
  atomic_store(is_done, 1);
  for (;;) pause();
  return NULL;
}
static void* allocate_for_ever(void* ignored) {
  uint64_t state = (uintptr_t)&state;
  void* kept[1000] = {NULL};
  for (;;) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const size_t i = (state >> 40) % 1000;
    free(kept[i]);
    kept[i] = malloc((state >> 33) % (i == 0 ? 3 * mb : 5000));
    if (kept[i] != NULL) memset(kept[i], 1, 1);
  }
  return ignored;
}

static void in_thread(void* (*run)(void*), void* argument, int joins) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, argument) != 0) abort();
  if (joins) pthread_join(thread, NULL);
}

// Part of its own block, which the program itself returns to the system.
static char* dropped;
static void drop(int number) {
  madvise(dropped, number == SIGUSR1 ? 32 * mb : 512 * kb, MADV_DONTNEED);
}

int main(int argc, char** argv) {
  const char* const what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "small") == 0) {
    allocate();
  } else if (strcmp(what, "sparse") == 0) {
    allocate();
    free_but(8);
  } else if (strcmp(what, "large") == 0) {
    for (int i = 0; i < 8; ++i) filled(5 * mb);
    // Reserved, read, never written.
    const volatile char* const untouched = calloc(100 * mb, 1);
    for (size_t i = 0; i < 50 * mb; i += 4 * kb) (void)untouched[i];
  } else if (strcmp(what, "drops") == 0) {
    dropped = aligned_alloc(2 * mb, 64 * mb);
    memset(dropped, 1, 64 * mb);
    signal(SIGUSR1, drop);
    signal(SIGUSR2, drop);
  } else if (strcmp(what, "lazy") == 0) {
    // Blocks that the engine has purged, and a mapping of the program that MADV_FREE may take.
    allocate();
    free_but(count);
    malloc_trim(0);
    char* const own =
        mmap(NULL, 8 * mb, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED) abort();
    memset(own, 1, 8 * mb);
    if (madvise(own, 8 * mb, MADV_FREE) != 0) abort();
  } else if (strcmp(what, "odd") == 0) {
    for (int i = 0; i < 3; ++i) filled(3 * mb);
  } else if (strcmp(what, "freed") == 0) {
    for (int i = 0; i < 16; ++i) blocks[i] = filled(mb);
    for (int i = 0; i < 3; ++i) free(blocks[2 * i]);
  } else if (strcmp(what, "ended") == 0) {
    in_thread(use_and_end, NULL, 1);
  } else if (strcmp(what, "waiting") == 0) {
    static atomic_int is_done;
    in_thread(wait_for_ever, &is_done, 0);
    while (!atomic_load(&is_done)) usleep(1000);
    free_but(4);
  } else if (strcmp(what, "busy") == 0) {
    for (int i = 0; i < 4; ++i) in_thread(allocate_for_ever, NULL, 0);
  } else if (strcmp(what, "little") == 0) {
    filled(kb);
  } else if (strcmp(what, "nothing") != 0) {
    return 1;
  }
  if (write(STDOUT_FILENO, "ready\n", 6) != 6) return 1;
  char line;
  while (read(STDIN_FILENO, &line, 1) == 1 && line != '\n') continue;
  return 0;
}
