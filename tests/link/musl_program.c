// A program for a C library other than glibc, with the engine linked in: both the program and the
// library get their memory from it, also in threads and children. (musl runs no .preinit_array,
// where the engine registers its fork handlers, so here no thread works during a fork.)
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

size_t malloc_good_size(size_t bytes);
size_t malloc_usable_size(void* block);

static void require(int holds, const char* what) {
  if (holds) return;
  puts(what);
  exit(1);
}

static void use(size_t seed) {
  char* block[100];
  for (size_t i = 0; i < 100; ++i) {
    const size_t bytes = 1 + (seed + i) * (seed + i) * 37 % 60000;
    block[i] = i % 3 == 0 ? calloc(1, bytes) : malloc(bytes);
    require(block[i] != NULL, "null");
    require(i % 3 != 0 || block[i][bytes - 1] == 0, "calloc gives memory that is not zero");
    require(malloc_usable_size(block[i]) == malloc_good_size(bytes), "not the engine's block");
    memset(block[i], (int)i, bytes);
    block[i] = realloc(block[i], 2 * bytes);
    require(block[i] != NULL && block[i][bytes - 1] == (char)i, "realloc loses the contents");
  }
  for (size_t i = 0; i < 100; ++i) free(block[i]);
}

static void* work(void* argument) {
  for (size_t i = 0; i < 20; ++i) use((uintptr_t)argument + i);
  return NULL;
}

int main(void) {
  char* const copy = strdup("a text of the C library's");
  require(malloc_usable_size(copy) == malloc_good_size(26), "the library has another malloc");
  free(copy);
  void* aligned = NULL;
  require(posix_memalign(&aligned, 4096, 100) == 0 && (uintptr_t)aligned % 4096 == 0, "alignment");
  free(aligned);
  pthread_t thread[4];
  for (uintptr_t i = 0; i < 4; ++i)
    require(pthread_create(&thread[i], NULL, work, (void*)(i * 100)) == 0, "no thread");
  for (int i = 0; i < 4; ++i) pthread_join(thread[i], NULL);
  for (int i = 0; i < 10; ++i) {
    const pid_t child = fork();
    require(child >= 0, "no child");
    if (child == 0) {
      alarm(20);
      use(3);
      _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    require(status == 0, "a child failed");
  }
  return 0;
}
