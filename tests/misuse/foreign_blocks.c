// A program with two allocators, whose blocks of the other come to free: of libc's malloc, of the
// data segment, of mappings, also from a coroutine whose stack lies in the same mapping. All of it
// goes on; with an argument, in a sandbox that refuses to tell what is mapped.
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "classes.h"

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
  put(around_the_stack + mapping_bytes / 2 + stack_bytes + 64);  // and behind it
}

static void refuse_to_tell(void) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mincore, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_msync, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) exit(2);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    puts("this system grants no seccomp filter");
}

int main(int argc, char** argv) {
  (void)argv;
  if (argc > 1) refuse_to_tell();
  void* const libc = dlopen("libc.so.6", RTLD_LAZY);  // a search in it alone
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
  // A look at each would take seconds.
  for (int i = 0; i < many; ++i) put(libc_malloc(48));
  char* const still = malloc(100);
  if (still == NULL) return 2;
  free(still);
  return 0;
}
