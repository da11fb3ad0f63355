// Programs that misuse malloc, one class of misuse each, and what the allocator in force makes of
// it: `misuse`, or LD_PRELOAD=libjemalloc.so.2 misuse (classes.h).
#include <dlfcn.h>
#include <sys/mman.h>

#include "classes.h"

// C23; libc has it from 2.43 on.
extern void free_sized(void*, size_t) __attribute__((weak));

extern char** environ;

enum { small = 48, medium = 3000, large = 300000 };

static void* get_small(void* unused) {
  (void)unused;
  return get(small);
}
static void* put_twice(void* p) {
  put(p);
  put(p);
  return NULL;
}

// ---- the classes ----

static void double_free(void) { put_twice(get(small)); }

static void double_free_with_another_between(void) {
  char* const a = get(small);
  char* const b = get(small);
  put(a);
  put(b);
  put(a);
}

static void double_free_after_many(void) {
  enum { others = 3000 };
  static char* other[others];
  char* const a = get(small);
  for (int i = 0; i < others; ++i) other[i] = get(small);
  put(a);
  for (int i = 0; i < others; ++i) put(other[i]);
  put(a);
}

static void double_free_after_reuse(void) {
  char* const a = get(small);
  put(a);
  get(small);
  put(a);
}

static void double_free_of_large(void) { put_twice(get(large)); }

static void double_free_of_huge(void) { put_twice(get(64 << 20)); }

static void double_free_by_another_thread(void) { in_thread(put_twice, get(small)); }

static void free_here_and_in_another_thread(void) {
  char* const a = get(small);
  put(a);
  in_thread(put_once, a);
}

static void free_in_another_thread_and_here(void) {
  char* const a = get(small);
  in_thread(put_once, a);
  put(a);
}

static void free_in_two_other_threads(void) {
  char* const a = get(small);
  in_thread(put_once, a);
  in_thread(put_once, a);
}

static void double_free_of_ended_threads_block(void) { put_twice(in_thread(get_small, NULL)); }

static void free_of_stack(void) {
  char local[128];
  put(local + 32);
}

static void free_of_first_stack(void) {
  char local[128];
  in_thread(put_once, local + 32);
}

static void free_of_environment(void) {
  put((void*)(((uintptr_t)environ[0] + 15) / 16 * 16));  // as aligned as a block
}

static _Thread_local char own_variable[256] __attribute__((aligned(16)));
static void free_of_threads_variable(void) { put(own_variable + 16); }

static char variable[256] __attribute__((aligned(16)));
static void free_of_variable(void) {
  for (int i = 0; i < 3; ++i) put(variable + 16);
}

static void free_of_mapping(void) {
  char* const page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  put(page + 64);
}

static void free_of_unmapped(void) { put((void*)(uintptr_t)0x123450); }

static void free_of_libcs_block(void) {
  void* const libc = dlopen("libc.so.6", RTLD_LAZY);  // a search in it alone
  if (libc == NULL) _exit(2);
  void* (*const libc_malloc)(size_t) = (void* (*)(size_t))dlsym(libc, "malloc");
  if (libc_malloc == NULL) _exit(2);
  put(libc_malloc(small));
}

static void free_of_misaligned(void) { put(get(small) + 1); }

static void free_inside(void) { put(get(256) + 64); }

static void free_inside_of_another_threads(void) { put((char*)in_thread(get_small, NULL) + 16); }

static void free_inside_of_large(void) { put(get(large) + 64); }

static void free_of_a_page_inside_of_large(void) { put(get(large) + 65536); }

static void realloc_of_freed(void) {
  char* const a = get(small);
  put(a);
  opaque(realloc(opaque(a), 500));
}

static void realloc_of_freed_large(void) {
  char* const a = get(large);
  put(a);
  opaque(realloc(opaque(a), 2 * large));
}

static void realloc_inside(void) { opaque(realloc(opaque(get(256) + 64), 1000)); }

static void realloc_of_variable(void) { opaque(realloc(opaque(variable + 16), 1000)); }

static void usable_size_of_freed_large(void) {
  char* const a = get(large);
  put(a);
  opaque((void*)malloc_usable_size(opaque(a)));
}

static void usable_size_of_variable(void) {
  opaque((void*)malloc_usable_size(opaque(variable + 16)));
}

static void sized_free_of_another_size(void) {
  void (*sized)(void*, size_t) = free_sized;
  // operator delete(void*, unsigned long)
  if (sized == NULL) sized = (void (*)(void*, size_t))dlsym(RTLD_DEFAULT, "_ZdlPvm");
  if (sized == NULL) _exit(2);
  sized(get(small), 4000);
}

static void write_after_free(void) {
  char* const a = get(small);
  put(a);
  memset(opaque(a), 'z', small);
}

static void write_behind_the_end(void) {
  char* const a = get(small);
  get(small);
  memset(opaque(a), 'z', small + 16);
  put(a);
}

// Of several blocks, for allocators that guard some.
enum { several = 40 };
static void write_after_frees(void) {
  char* block[several];
  for (int i = 0; i < several; ++i) block[i] = get(medium);
  for (int i = 0; i < several; ++i) {
    put(block[i]);
    *(char*)opaque(block[i] + 1000) = 'z';
  }
}

static void write_behind_the_ends(void) {
  for (int i = 0; i < several; ++i) {
    char* const a = get(medium);
    *(char*)opaque(a + malloc_usable_size(a)) = 'z';
  }
}

const Class classes[] = {
    {"double free", double_free, small},
    {"double free, another free between", double_free_with_another_between, small},
    {"double free, 3000 frees between", double_free_after_many, small},
    {"double free, the block handed out again", double_free_after_reuse, small},
    {"double free of 300 kB", double_free_of_large, large},
    {"double free of 64 MiB", double_free_of_huge, large},
    {"double free by another thread", double_free_by_another_thread, small},
    {"free here, then in another thread", free_here_and_in_another_thread, small},
    {"free in another thread, then here", free_in_another_thread_and_here, small},
    {"free in two other threads", free_in_two_other_threads, small},
    {"double free of an ended thread's block", double_free_of_ended_threads_block, small},
    {"free of the stack", free_of_stack, small},
    {"free of the first thread's stack by another", free_of_first_stack, small},
    {"free of the environment", free_of_environment, small},
    {"free of a variable", free_of_variable, small},
    {"free of a thread's variable", free_of_threads_variable, small},
    {"free of a mapping", free_of_mapping, small},
    {"free of an unmapped address", free_of_unmapped, small},
    {"free of libc's own block", free_of_libcs_block, small},
    {"free of a misaligned pointer", free_of_misaligned, small},
    {"free inside of a block", free_inside, 256},
    {"free inside of another thread's block", free_inside_of_another_threads, small},
    {"free inside of 300 kB", free_inside_of_large, large},
    {"free of a page inside of 300 kB", free_of_a_page_inside_of_large, large},
    {"realloc of a freed block", realloc_of_freed, small},
    {"realloc of freed 300 kB", realloc_of_freed_large, large},
    {"realloc inside of a block", realloc_inside, 256},
    {"realloc of a variable", realloc_of_variable, small},
    {"usable size of freed 300 kB", usable_size_of_freed_large, large},
    {"usable size of a variable", usable_size_of_variable, small},
    {"sized free of another size", sized_free_of_another_size, small},
    {"write after free", write_after_free, small},
    {"write behind the end", write_behind_the_end, small},
    {"40 writes after free of 3 kB", write_after_frees, medium},
    {"40 writes behind the end of 3 kB", write_behind_the_ends, medium},
};
const int class_count = sizeof classes / sizeof *classes;
