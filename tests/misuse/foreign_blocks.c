// A program with two allocators that frees the other one's blocks: from libc's malloc, the data
// segment and mappings, also from a coroutine whose stack lies in the same mapping. It keeps
// running throughout; with an argument, in a sandbox that hides what is mapped.
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "classes.h"
#include "programs/support/seccomp.h"

enum { many = 3000, mapping_bytes = 1 << 20, stack_bytes = 64 << 10 };

static char* mapping(void) {
  char* const begin =
      mmap(NULL, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) exit(2);
  return begin;
}

static char* around_the_stack;
static ucontext_t outside;
static ucontext_t coroutine;

static void run_coroutine(void) {
  put(around_the_stack + 64);                                    // below its stack,
  put(around_the_stack + mapping_bytes / 2 + stack_bytes + 64);  // and past it
}

int main(int argc, char** argv) {
  (void)argv;
  if (argc > 1 && stop_calls(SYS_mincore, SYS_msync, SECCOMP_RET_ERRNO | EPERM) != 0)
    puts("this system grants no seccomp filter");
  void* const libc = dlopen("libc.so.6", RTLD_LAZY);  // a search in this one only
  void* (*const libc_malloc)(size_t) =
      (void* (*)(size_t))(uintptr_t)(libc != NULL ? dlsym(libc, "malloc") : NULL);
  if (libc_malloc == NULL) {
    puts("no second malloc here");
    return 0;
  }
  char* const in_segment = sbrk(4096);
  if (in_segment != (char*)-1) put((char*)(((uintptr_t)in_segment + 63) / 64 * 64));
  put(mapping() + 4096 + 8);
  around_the_stack = mapping();
  getcontext(&coroutine);
  coroutine.uc_stack.ss_sp = around_the_stack + mapping_bytes / 2;
  coroutine.uc_stack.ss_size = stack_bytes;
  coroutine.uc_link = &outside;
  makecontext(&coroutine, run_coroutine, 0);
  if (swapcontext(&outside, &coroutine) != 0) return 2;
  // Checking each would take seconds.
  for (int i = 0; i < many; ++i) put(libc_malloc(48));
  char* const still = malloc(100);
  if (still == NULL) return 2;
  free(still);
  return 0;
}
