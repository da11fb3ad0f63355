// A library that interposes libc functions, as tracers, profilers, fake clocks and fake roots do.
// It has one trampoline for each function in hooked_names.h, which run.py generates from the
// imports of the library under test. A trampoline saves the argument registers, calls hooked(),
// restores them, and jumps to the real function. BESIDE_MODE says what a hook does before that:
//
//     allocate  allocates and frees, and keeps a few blocks
//     lock      allocates while it holds a mutex that a second thread also takes
//     dlsym     looks up names, even unknown ones, while a second thread opens and closes a library
//     fail      sometimes makes a function fail in a way that its manual page allows
//     helper    in munmap and madvise, waits for another thread that uses the heap
//
// BESIDE_GUARD says what keeps a hook from recursing: "flag", a flag of the thread; or "depth",
// which allows three nested hooks. BESIDE_HOOK names the only function to hook.
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "beside.h"
#include "hooked_names.h"

#ifndef __x86_64__
#error "the trampolines are written for x86-64"
#endif

// Where a trampoline saves the argument registers.
typedef struct Arguments {
  uint64_t rdi, rsi, rdx, rcx, r8, r9, rax, r10;
  unsigned char xmm[8][16];
} Arguments;

__attribute__((visibility("hidden"))) void* hooked(size_t index, const Arguments* arguments);

__asm__(
    ".text\n"
    ".type hooks_common,@function\n"
    "hooks_common:\n"
    "  .cfi_startproc\n"
    "  .cfi_def_cfa_offset 16\n"  // the index is pushed
    "  pushq %rbp\n"
    "  .cfi_def_cfa_offset 24\n"
    "  .cfi_offset %rbp, -24\n"
    "  movq %rsp, %rbp\n"
    "  .cfi_def_cfa_register %rbp\n"
    "  subq $200, %rsp\n"
    "  movq %rdi, 0(%rsp)\n"
    "  movq %rsi, 8(%rsp)\n"
    "  movq %rdx, 16(%rsp)\n"
    "  movq %rcx, 24(%rsp)\n"
    "  movq %r8, 32(%rsp)\n"
    "  movq %r9, 40(%rsp)\n"
    "  movq %rax, 48(%rsp)\n"
    "  movq %r10, 56(%rsp)\n"
    "  movups %xmm0, 64(%rsp)\n"
    "  movups %xmm1, 80(%rsp)\n"
    "  movups %xmm2, 96(%rsp)\n"
    "  movups %xmm3, 112(%rsp)\n"
    "  movups %xmm4, 128(%rsp)\n"
    "  movups %xmm5, 144(%rsp)\n"
    "  movups %xmm6, 160(%rsp)\n"
    "  movups %xmm7, 176(%rsp)\n"
    "  movq 8(%rbp), %rdi\n"
    "  movq %rsp, %rsi\n"
    "  call hooked\n"
    "  movq %rax, %r11\n"
    "  movq 0(%rsp), %rdi\n"
    "  movq 8(%rsp), %rsi\n"
    "  movq 16(%rsp), %rdx\n"
    "  movq 24(%rsp), %rcx\n"
    "  movq 32(%rsp), %r8\n"
    "  movq 40(%rsp), %r9\n"
    "  movq 48(%rsp), %rax\n"
    "  movq 56(%rsp), %r10\n"
    "  movups 64(%rsp), %xmm0\n"
    "  movups 80(%rsp), %xmm1\n"
    "  movups 96(%rsp), %xmm2\n"
    "  movups 112(%rsp), %xmm3\n"
    "  movups 128(%rsp), %xmm4\n"
    "  movups 144(%rsp), %xmm5\n"
    "  movups 160(%rsp), %xmm6\n"
    "  movups 176(%rsp), %xmm7\n"
    "  leave\n"
    "  .cfi_def_cfa %rsp, 16\n"
    "  addq $8, %rsp\n"
    "  .cfi_def_cfa_offset 8\n"
    "  jmp *%r11\n"
    "  .cfi_endproc\n"
    ".size hooks_common, .-hooks_common\n");

#define TRAMPOLINE(index, name)           \
  __asm__(                                \
      ".text\n"                           \
      ".globl " #name                     \
      "\n"                                \
      ".type " #name ",@function\n" #name \
      ":\n"                               \
      "  .cfi_startproc\n"                \
      "  pushq $" #index                  \
      "\n"                                \
      "  .cfi_def_cfa_offset 16\n"        \
      "  jmp hooks_common\n"              \
      "  .cfi_endproc\n"                  \
      ".size " #name ", .-" #name "\n");
HOOKED_NAMES(TRAMPOLINE)

#define NAME_OF(index, name) #name,
static const char* const names[] = {HOOKED_NAMES(NAME_OF)};
enum { hooks = sizeof names / sizeof *names };

static bool same(const char* left, const char* right) {
  while (*left != '\0' && *left == *right) ++left, ++right;
  return *left == *right;
}

// ---- the real functions ----

typedef void* Lookup(void*, const char*);

static Lookup* real_dlsym(void) {
  static _Atomic(Lookup*) found;
  Lookup* lookup = atomic_load(&found);
  if (lookup == NULL) {
    *(void**)&lookup = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    atomic_store(&found, lookup);
  }
  return lookup;
}

static void* real_function(size_t index) {
  static _Atomic(void*) found[hooks];
  void* function = atomic_load(&found[index]);
  if (function == NULL) {
    function = same(names[index], "dlsym") ? (void*)(uintptr_t)real_dlsym()
                                           : real_dlsym()(RTLD_NEXT, names[index]);
    if (function == NULL) abort();
    atomic_store(&found[index], function);
  }
  return function;
}

// The looked-up name may itself be hooked.
static int* own_errno(void) {
  static _Atomic(void*) found;
  void* function = atomic_load(&found);
  if (function == NULL) {
    function = real_dlsym()(RTLD_NEXT, "__errno_location");
    atomic_store(&found, function);
  }
  int* (*location)(void) = NULL;
  *(void**)&location = function;
  return location();
}

// ---- failures ----

#define FAILURE(name, type, result, error) \
  static type name(void) {                 \
    *own_errno() = error;                  \
    return result;                         \
  }
FAILURE(minus_one_no_memory, long, -1, ENOMEM)
FAILURE(minus_one_again, long, -1, EAGAIN)
FAILURE(minus_one_no_call, long, -1, ENOSYS)
FAILURE(minus_one_no_access, long, -1, EACCES)
FAILURE(null_no_access, void*, NULL, EACCES)
static long no_memory(void) { return ENOMEM; }
static long again(void) { return EAGAIN; }
static long zero(void) { return 0; }

// (mmap, mremap and sbrk report failure by the address -1.)
static const struct {
  const char* name;
  void (*function)(void);
} failures[] = {
#define FAILS(name, how) \
  { name, (void (*)(void))(how) }
    FAILS("mmap", minus_one_no_memory),
    FAILS("munmap", minus_one_no_memory),
    FAILS("mprotect", minus_one_no_memory),
    FAILS("mremap", minus_one_no_memory),
    FAILS("madvise", minus_one_again),
    FAILS("mincore", minus_one_no_call),
    FAILS("munlock", minus_one_no_memory),
    FAILS("sbrk", minus_one_no_memory),
    FAILS("clock_gettime", minus_one_no_call),
    FAILS("sched_getaffinity", minus_one_no_call),
    FAILS("sysconf", minus_one_no_call),
    FAILS("getauxval", zero),
    FAILS("open", minus_one_no_access),
    FAILS("write", minus_one_no_access),
    FAILS("link", minus_one_no_access),
    FAILS("rename", minus_one_no_access),
    FAILS("getcwd", null_no_access),
    FAILS("prctl", minus_one_no_call),
    FAILS("dlsym", zero),
    FAILS("dl_iterate_phdr", zero),
    FAILS("pthread_attr_init", no_memory),
    FAILS("pthread_create", again),
    FAILS("pthread_key_create", again),
    FAILS("__pthread_key_create", again),
    FAILS("pthread_setspecific", no_memory),
};
#pragma GCC diagnostic ignored "-Wcast-function-type"

// One call in seven, from the third on.
static void* failure_of(size_t index) {
  static atomic_uint calls[hooks];
  const unsigned call = atomic_fetch_add(&calls[index], 1);
  if (call % 7 != 2) return NULL;
  for (size_t i = 0; i < sizeof failures / sizeof *failures; ++i)
    if (same(names[index], failures[i].name)) return (void*)(uintptr_t)failures[i].function;
  return NULL;
}

// ---- what a hook does ----

static enum Mode { nothing, allocate, lock, look_up, fail, helper } mode;
static bool allows_depth;
static size_t only = SIZE_MAX;
static atomic_bool has_begun;  // the second thread runs
// (Volatile: libc's headers claim that malloc calls nothing in this file.)
static __thread volatile int depth;
static __thread volatile bool holds_mutex;

static void use_heap(unsigned turn, bool also_large) {
  static const size_t small_sizes[] = {1, 24, 100, 500, 3000, 20000};
  enum { sizes = sizeof small_sizes / sizeof *small_sizes, kept_blocks = 512 };
  static _Atomic(void*) kept[kept_blocks];
  char* block[sizes];
  for (size_t i = 0; i < sizes; ++i) {
    block[i] = malloc(small_sizes[i]);
    if (block[i] != NULL) block[i][small_sizes[i] - 1] = block[i][0] = (char)i;
  }
  char* grown = calloc(3, 50);
  char* larger = realloc(grown, also_large ? 70000 : 400);
  free(larger != NULL ? larger : grown);
  // A new block replaces a kept one: the heap must refill, and blocks of other threads are freed.
  free(atomic_exchange(&kept[turn % kept_blocks], block[turn % sizes]));
  block[turn % sizes] = NULL;
  for (size_t i = 0; i < sizes; ++i) free(block[i]);
  if (also_large) free(malloc((size_t)1 << (18 + turn / 64 % 6)));
}

static void look_names_up(unsigned turn) {
  char name[] = "beside_unknown_00000000";
  for (size_t i = sizeof name - 2; turn != 0; --i, turn /= 10) name[i] = (char)('0' + turn % 10);
  Lookup* lookup = real_dlsym();
  (void)lookup(RTLD_DEFAULT, name);
  (void)lookup(RTLD_DEFAULT, "qsort");
}

// ---- the second thread ----

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool is_wanted, is_inside;  // the second thread under the mutex

// Uses what the threads of a heap share: slabs and large blocks of many sizes, all of them, and
// counts.
static void use_shared_parts(unsigned turn) {
  enum { blocks = 24 };
  void* block[blocks];
  const size_t bytes = (size_t)300 << turn % 12;
  for (size_t i = 0; i < blocks; ++i) block[i] = malloc(bytes + i * bytes / 16);
  for (size_t i = 0; i < blocks; ++i) free(block[i]);
  use_heap(turn, true);
  if (turn % 8 == 7) malloc_trim(0);
  if (turn % 8 == 3) (void)mallinfo2();
}

static void* contend(void* unused) {
  (void)unused;
  for (unsigned turn = 0;; ++turn) {
    if (mode == look_up) {
      // A child forked during a dlopen must not look up names, whatever its malloc.
      pthread_mutex_lock(&mutex);
      void* library = dlopen("libm.so.6", RTLD_NOW);
      if (library != NULL) dlclose(library);
      pthread_mutex_unlock(&mutex);
    }
    if (mode == lock) {
      pthread_mutex_lock(&mutex);
      holds_mutex = true;
      atomic_store(&is_inside, true);
      for (int i = 0; i < 10 && atomic_load(&is_wanted); ++i) sched_yield();
      use_shared_parts(turn);
      atomic_store(&is_inside, false);
      holds_mutex = false;
      pthread_mutex_unlock(&mutex);
    }
    for (int i = 0; i < 20 && !atomic_load(&is_wanted); ++i) usleep(20);
  }
  return NULL;
}

// Takes the mutex; the first few times while the second thread holds it, if that happens within a
// millisecond or so.
static void take_mutex(size_t index) {
  static atomic_uint calls[hooks];
  const unsigned call = atomic_fetch_add(&calls[index], 1);
  if (atomic_load(&has_begun) && (call < 40 || call % 64 == 0)) {
    atomic_store(&is_wanted, true);
    for (int i = 0; i < 100 && !atomic_load(&is_inside); ++i) usleep(10);
    atomic_store(&is_wanted, false);
  }
  pthread_mutex_lock(&mutex);
  pthread_mutex_unlock(&mutex);
}

// What the helper must free: blocks of the waiting thread.
enum { given_small = 1500, given_large = 6, most_given = given_small + given_large };
static void* given_blocks[most_given];
static size_t given;
static sem_t asked, answered;
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
enum { helper_seconds = 5 };

static void* help(void* unused) {
  (void)unused;
  depth = 1000;  // its own calls are not checked
  for (unsigned turn = 0;; ++turn) {
    while (sem_wait(&asked) != 0) continue;
    for (size_t i = 0; i < given; ++i) free(given_blocks[i]);
    for (size_t bytes = 8; bytes <= (size_t)256 << 10; bytes += bytes / 4 + 8) free(malloc(bytes));
    for (size_t bytes = (size_t)1 << 20; bytes <= (size_t)16 << 20; bytes *= 4) {
      char* block = malloc(bytes);
      if (block != NULL) block[0] = block[bytes - 1] = 1;
      free(block);
    }
    if (turn % 4 == 0) malloc_trim(0);
    (void)mallinfo2();
    sem_post(&answered);
  }
  return NULL;
}

static void ask_helper(const char* name) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += helper_seconds;
  sem_post(&asked);
  int waited;
  do {
    waited = sem_timedwait(&answered, &until);
  } while (waited != 0 && *own_errno() == EINTR);
  if (waited == 0) return;
  // (dprintf would allocate.)
  char line[160];
  const int length =
      snprintf(line, sizeof line,
               "%s is called under a lock or a hold: no other thread can use the heap\n", name);
  if (write(2, line, (size_t)length) < 0) _exit(1);
  void* stack[40];
  backtrace_symbols_fd(stack, backtrace(stack, 40), 2);
  _exit(exit_was_held);
}

static void need_helper(const char* name) {
  static atomic_uint calls;
  const unsigned call = atomic_fetch_add(&calls, 1);
  if (call > 40 && call % 16 != 0) return;
  pthread_mutex_lock(&asking);
  ask_helper(name);
  // Then this thread itself, which may hold only its own heap; and its blocks return from another
  // thread.
  use_heap(call, true);
  for (size_t i = 0; i < most_given; ++i)
    given_blocks[i] = malloc(i < given_small ? 16 + i % 60 * 16 : (size_t)100 << 10 << i % 6);
  given = most_given;
  ask_helper(name);
  given = 0;
  pthread_mutex_unlock(&asking);
}

// ---- what is announced ----

static _Atomic(Announced*) announced;

void beside_watch(Announced* watcher) { atomic_store(&announced, watcher); }

static void announce(const char* name, const Arguments* arguments) {
  Announced* watcher = atomic_load(&announced);
  if (watcher == NULL) return;
  const bool goes =
      same(name, "munmap") || same(name, "mremap") ||
      (same(name, "madvise") && (arguments->rdx == MADV_DONTNEED || arguments->rdx == MADV_FREE)) ||
      (same(name, "mmap") && (arguments->rcx & MAP_FIXED) != 0);
  if (goes) watcher(name, arguments->rdi, arguments->rdi + arguments->rsi);
  if (same(name, "sbrk") && (int64_t)arguments->rdi < 0) {
    void* (*real_sbrk)(intptr_t) = NULL;
    *(void**)&real_sbrk = real_dlsym()(RTLD_NEXT, name);
    const uintptr_t end = (uintptr_t)real_sbrk(0);
    watcher(name, end + arguments->rdi, end);
  }
}

// ---- the hook ----

// Whether this call does what the mode says: the first ones of each function, then one in eight,
// since some functions are called with each free.
static bool is_chosen(size_t index) {
  static atomic_uint calls[hooks];
  const unsigned call = atomic_fetch_add(&calls[index], 1);
  return call < 300 || call % 8 == 0;
}

// The calls that stay visible to others.
static bool may_wait(const char* name) {
  return same(name, "munmap") || same(name, "madvise") || same(name, "mremap") ||
         same(name, "sbrk");
}

static void act(size_t index) {
  static atomic_uint turns;
  const unsigned turn = atomic_fetch_add(&turns, 1);
  switch (mode) {
    case allocate:
      if (depth > 1) {
        free(malloc((size_t)100 << turn % 8));
      } else if (is_chosen(index)) {
        use_heap(turn, turn % 64 == 0);
      }
      break;
    case lock:
      if (!holds_mutex) take_mutex(index);
      break;
    case look_up:
      if (is_chosen(index)) look_names_up(turn);
      break;
    case helper:
      if (atomic_load(&has_begun) && may_wait(names[index])) need_helper(names[index]);
      break;
    case nothing:
    case fail:
      break;
  }
}

static atomic_bool is_set_up;

static void set_up(void) {
  const char* name = getenv("BESIDE_MODE");
  static const char* const modes[] = {"none", "allocate", "lock", "dlsym", "fail", "helper"};
  if (name == NULL) return;
  for (size_t i = 0; i < sizeof modes / sizeof *modes; ++i)
    if (same(name, modes[i])) mode = (enum Mode)i;
  const char* guard = getenv("BESIDE_GUARD");
  allows_depth = guard != NULL && same(guard, "depth");
  const char* hook = getenv("BESIDE_HOOK");
  for (size_t i = 0; hook != NULL && i < hooks; ++i)
    if (same(hook, names[i])) only = i;
  atomic_store(&is_set_up, true);
}

void* hooked(size_t index, const Arguments* arguments) {
  void* function = real_function(index);
  if (!atomic_load(&is_set_up)) set_up();
  if (mode == nothing || (only != SIZE_MAX && index != only)) return function;
  const int error = *own_errno();
  if (mode == helper) announce(names[index], arguments);
  if (depth < (allows_depth ? 3 : 1)) {
    depth += 1;
    act(index);
    if (mode == fail) {
      void* failure = failure_of(index);
      if (failure != NULL) function = failure;
    }
    depth -= 1;
  }
  *own_errno() = error;
  return function;
}

// ---- the library's own life ----

static void hold_mutex(void) {
  pthread_mutex_lock(&mutex);
  holds_mutex = true;
}
static void leave_mutex(void) {
  holds_mutex = false;
  pthread_mutex_unlock(&mutex);
}
static void renew_mutex(void) {
  static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
  mutex = fresh;
  holds_mutex = false;
  atomic_store(&has_begun, false);  // the second thread is the parent's
}

void beside_begin(void) {
  void* stack[2];
  (void)backtrace(stack, 2);  // loads a library
  pthread_t thread;
  if (mode == lock || mode == look_up) {
    while (pthread_create(&thread, NULL, contend, NULL) != 0) usleep(1000);
  } else if (mode == helper) {
    sem_init(&asked, 0, 0);
    sem_init(&answered, 0, 0);
    while (pthread_create(&thread, NULL, help, NULL) != 0) usleep(1000);
  }
  atomic_store(&has_begun, true);
}

__attribute__((constructor)) static void construct(void) {
  for (size_t i = 0; i < hooks; ++i) real_function(i);
  if (!atomic_load(&is_set_up)) set_up();
  pthread_atfork(hold_mutex, leave_mutex, renew_mutex);
  for (unsigned i = 0; i < 100; ++i) use_heap(i, i % 20 == 0);
}
