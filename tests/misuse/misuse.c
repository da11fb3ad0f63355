// Programs that misuse malloc, one class of misuse each, and what the allocator in force does about
// it: `misuse`, or LD_PRELOAD=libjemalloc.so.2 misuse (classes.h).
#include <dlfcn.h>
#include <sys/mman.h>

#include "classes.h"

// C23; in libc since 2.43.
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

CLASS("double free", small) { put_twice(get(small)); }

CLASS("double free, another free between", small) {
  char* const a = get(small);
  char* const b = get(small);
  put(a);
  put(b);
  put(a);
}

CLASS("double free, 3000 frees between", small) {
  enum { others = 3000 };
  static char* other[others];
  char* const a = get(small);
  for (int i = 0; i < others; ++i) other[i] = get(small);
  put(a);
  for (int i = 0; i < others; ++i) put(other[i]);
  put(a);
}

CLASS("double free, the block handed out again", small) {
  char* const a = freed(small);
  get(small);
  put(a);
}

CLASS("double free of 300 kB", large) { put_twice(get(large)); }

CLASS("double free of 64 MiB", large) { put_twice(get(64 << 20)); }

CLASS("double free by another thread", small) { in_thread(put_twice, get(small)); }

CLASS("free here, then in another thread", small) {
  char* const a = freed(small);
  in_thread(put_once, a);
}

CLASS("free in another thread, then here", small) {
  char* const a = get(small);
  in_thread(put_once, a);
  put(a);
}

CLASS("free in two other threads", small) {
  char* const a = get(small);
  in_thread(put_once, a);
  in_thread(put_once, a);
}

CLASS("double free of an ended thread's block", small) { put_twice(in_thread(get_small, NULL)); }

CLASS("free of the stack", small) {
  char local[128];
  put(local + 32);
}

CLASS("free of the first thread's stack by another", small) {
  char local[128];
  in_thread(put_once, local + 32);
}

CLASS("free of the environment", small) {
  put((void*)(((uintptr_t)environ[0] + 15) / 16 * 16));  // as aligned as a block
}

static _Thread_local char own_variable[256] __attribute__((aligned(16)));
CLASS("free of a thread's variable", small) { put(own_variable + 16); }

static char variable[256] __attribute__((aligned(16)));
CLASS("free of a variable", small) {
  for (int i = 0; i < 3; ++i) put(variable + 16);
}

CLASS("free of a mapping", small) {
  char* const page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  put(page + 64);
}

CLASS("free of an unmapped address", small) { put((void*)(uintptr_t)0x123450); }

CLASS("free of libc's own block", small) {
  void* const libc = dlopen("libc.so.6", RTLD_LAZY);  // a search in this one only
  if (libc == NULL) _exit(2);
  void* (*const libc_malloc)(size_t) = (void* (*)(size_t))dlsym(libc, "malloc");
  if (libc_malloc == NULL) _exit(2);
  put(libc_malloc(small));
}

CLASS("free of a misaligned pointer", small) { put(get(small) + 1); }

CLASS("free inside a block", 256) { put(get(256) + 64); }

CLASS("free inside another thread's block", small) { put((char*)in_thread(get_small, NULL) + 16); }

CLASS("free inside 300 kB", large) { put(get(large) + 64); }

CLASS("free of a page inside 300 kB", large) { put(get(large) + 65536); }

CLASS("realloc of a freed block", small) {
  char* const a = freed(small);
  opaque(realloc(opaque(a), 500));
}

CLASS("realloc of freed 300 kB", large) {
  char* const a = freed(large);
  opaque(realloc(opaque(a), 2 * large));
}

CLASS("realloc inside a block", 256) { opaque(realloc(opaque(get(256) + 64), 1000)); }

CLASS("realloc of a variable", small) { opaque(realloc(opaque(variable + 16), 1000)); }

CLASS("usable size of freed 300 kB", large) {
  char* const a = freed(large);
  opaque((void*)malloc_usable_size(opaque(a)));
}

CLASS("usable size of a variable", small) {
  opaque((void*)malloc_usable_size(opaque(variable + 16)));
}

CLASS("sized free, wrong size", small) {
  void (*sized)(void*, size_t) = free_sized;
  // operator delete(void*, unsigned long)
  if (sized == NULL) sized = (void (*)(void*, size_t))dlsym(RTLD_DEFAULT, "_ZdlPvm");
  if (sized == NULL) _exit(2);
  sized(get(small), 4000);
}

CLASS("write after free", small) {
  char* const a = freed(small);
  memset(opaque(a), 'z', small);
}

CLASS("write past the end", small) {
  char* const a = get(small);
  get(small);
  memset(opaque(a), 'z', small + 16);
  put(a);
}

// With several blocks, for allocators that guard only some.
enum { several = 40 };
CLASS("40 writes after free of 3 kB", medium) {
  char* block[several];
  for (int i = 0; i < several; ++i) block[i] = get(medium);
  for (int i = 0; i < several; ++i) {
    put(block[i]);
    *(char*)opaque(block[i] + 1000) = 'z';
  }
}

CLASS("40 writes past the end of 3 kB", medium) {
  for (int i = 0; i < several; ++i) {
    char* const a = get(medium);
    *(char*)opaque(a + malloc_usable_size(a)) = 'z';
  }
}
