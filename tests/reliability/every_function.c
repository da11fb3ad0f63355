#include "every_function.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// malloc_info is left out: its stream belongs to one C library, and an audit library has another.

typedef void* (*Find)(const char* name);
typedef void (*Free)(void*);

// How a function that returns a block is called.
enum Form {
  by_size,
  by_count_and_size,
  by_alignment_and_size,
  by_size_and_alignment,
  by_size_nothrow
};

typedef struct Allocator {
  const char* name;
  const char* release;
  enum Form form;
  size_t alignment;
  bool throws;  // C++: with a tag behind its other arguments
} Allocator;

static const Allocator allocators[] = {
    {"calloc", "free", by_count_and_size, 16, false},
    {"malloc", "free", by_size, 16, false},
    {"valloc", "free", by_size, 4096, false},
    {"pvalloc", "cfree", by_size, 4096, false},
    {"memalign", "free", by_alignment_and_size, 256, false},
    {"aligned_alloc", "free", by_alignment_and_size, 64, false},
    {"_Znwm", "_ZdlPv", by_size, 16, true},
    {"_Znam", "_ZdaPv", by_size, 16, true},
    {"_ZnwmSt11align_val_t", "_ZdlPv", by_size_and_alignment, 128, true},
    {"_ZnamSt11align_val_t", "_ZdaPv", by_size_and_alignment, 128, true},
    {"_ZnwmRKSt9nothrow_t", "_ZdlPv", by_size_nothrow, 16, false},
    {"_ZnamRKSt9nothrow_t", "_ZdaPv", by_size_nothrow, 16, false},
};

static const size_t sizes[] = {0, 1, 100, 5000, 40000, 2 << 20};
enum { size_count = sizeof sizes / sizeof *sizes };

static void* allocate(void* function, const Allocator* how, size_t bytes) {
  static const char nothrow = 0;
  switch (how->form) {
    case by_size:
      return ((void* (*)(size_t))function)(bytes);
    case by_count_and_size:
      return ((void* (*)(size_t, size_t))function)(1, bytes);
    case by_alignment_and_size:
      return ((void* (*)(size_t, size_t))function)(how->alignment, bytes);
    case by_size_and_alignment:
      return ((void* (*)(size_t, size_t))function)(bytes, how->alignment);
    case by_size_nothrow:
      return ((void* (*)(size_t, const void*))function)(bytes, &nothrow);
  }
  return NULL;
}

static bool is_filled(const unsigned char* block, size_t bytes, unsigned char with) {
  for (size_t i = 0; i < bytes; i += bytes < 512 || i < 128 || i + 128 > bytes ? 1 : 97) {
    if (block[i] != with) return false;
  }
  return true;
}

// What a block of that size must be aligned to, if the program asks for nothing special: no object
// in it needs more than its own size.
static size_t least_alignment(const Allocator* how, size_t bytes) {
  if (how->form == by_alignment_and_size || how->form == by_size_and_alignment ||
      how->alignment > 16 || bytes >= 16)
    return how->alignment;
  size_t alignment = 1;
  while (alignment * 2 <= bytes) alignment *= 2;
  return alignment;
}

// All sizes live at once.
static bool allocator_works(Find find, const Allocator* how) {
  void* const function = find(how->name);
  Free release = (Free)find(how->release);
  if (release == NULL) release = (Free)find("free");
  unsigned char* block[size_count];
  bool works = true;
  for (size_t i = 0; i < size_count; ++i) {
    block[i] = allocate(function, how, sizes[i]);
    if (block[i] == NULL || (uintptr_t)block[i] % least_alignment(how, sizes[i]) != 0) return false;
    if (how->form == by_count_and_size) works = works && is_filled(block[i], sizes[i], 0);
    memset(block[i], (int)i + 1, sizes[i]);
  }
  for (size_t i = 0; i < size_count; ++i) {
    works = works && is_filled(block[i], sizes[i], (unsigned char)(i + 1));
    release(block[i]);
  }
  return works;
}

static bool resizing_works(Find find) {
  void* (*const resize)(void*, size_t) = (void* (*)(void*, size_t))find("realloc");
  Free const release = (Free)find("free");
  unsigned char* block = resize(NULL, 20);
  if (block == NULL) return false;
  memset(block, 7, 20);
  for (size_t bytes = 30; bytes < 4 << 20; bytes *= 3) {
    block = resize(block, bytes);
    if (block == NULL || !is_filled(block, bytes / 3, 7)) return false;
    memset(block, 7, bytes);
  }
  block = resize(block, 10);
  const bool works = block != NULL && is_filled(block, 10, 7);
  release(block);
  return works;
}

static bool posix_memalign_works(Find find) {
  int (*const function)(void**, size_t, size_t) =
      (int (*)(void**, size_t, size_t))find("posix_memalign");
  void* block = NULL;
  if (function(&block, 4096, 100) != 0 || (uintptr_t)block % 4096 != 0) return false;
  memset(block, 1, 100);
  ((Free)find("free"))(block);
  return function(&block, 3, 100) == EINVAL;
}

// Those that take a block and say something of it, or take it with its size.
static bool sized_functions_work(Find find) {
  void* (*const allocate_plain)(size_t) = (void* (*)(size_t))find("malloc");
  Free const release = (Free)find("free");
  size_t (*const usable)(void*) = (size_t(*)(void*))find("malloc_usable_size");
  void* block = allocate_plain(100);
  if (block == NULL || usable(block) < 100 || usable(NULL) != 0) return false;
  release(block);
  static const char* const by_size_alone[] = {"free_sized", "_ZdlPvm", "_ZdaPvm"};
  for (size_t i = 0; i < sizeof by_size_alone / sizeof *by_size_alone; ++i) {
    void (*const function)(void*, size_t) = (void (*)(void*, size_t))find(by_size_alone[i]);
    if (function != NULL) function(allocate_plain(100), 100);
  }
  static const char* const with_one_more[] = {"free_aligned_sized", "sdallocx"};
  for (size_t i = 0; i < sizeof with_one_more / sizeof *with_one_more; ++i) {
    void (*const function)(void*, size_t, size_t) =
        (void (*)(void*, size_t, size_t))find(with_one_more[i]);
    if (function == NULL) continue;
    i == 0 ? function(allocate_plain(100), 16, 100) : function(allocate_plain(100), 100, 0);
  }
  size_t (*const good_size)(size_t) = (size_t(*)(size_t))find("malloc_good_size");
  if (good_size != NULL && good_size(100) < 100) return false;
  size_t (*const nallocx)(size_t, int) = (size_t(*)(size_t, int))find("nallocx");
  if (nallocx != NULL && nallocx(100, 0) < 100) return false;
  struct Sized {
    void* block;
    size_t bytes;
  };
  struct Sized (*const at_least)(size_t) = (struct Sized(*)(size_t))find("alloc_at_least");
  if (at_least != NULL) {
    const struct Sized got = at_least(1000);
    if (got.block == NULL || got.bytes < 1000) return false;
    memset(got.block, 1, got.bytes);
    release(got.block);
  }
  return true;
}

// On a standard error that nobody reads.
static void write_statistics(void (*write_them)(void)) {
  static atomic_flag is_taken = ATOMIC_FLAG_INIT;  // standard error is the whole process's
  while (atomic_flag_test_and_set(&is_taken)) sched_yield();
  const int kept = dup(STDERR_FILENO);
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (kept >= 0 && nowhere >= 0) {
    dup2(nowhere, STDERR_FILENO);
    write_them();
    dup2(kept, STDERR_FILENO);
  }
  close(kept);
  close(nowhere);
  atomic_flag_clear(&is_taken);
}

static bool reports_work(Find find) {
  struct mallinfo2 (*const info)(void) = (struct mallinfo2(*)(void))find("mallinfo2");
  if (info != NULL && info().uordblks > info().arena + info().hblkhd) return false;
  int (*const trim)(size_t) = (int (*)(size_t))find("malloc_trim");
  if (trim != NULL) trim(0);
  int (*const tune)(int, int) = (int (*)(int, int))find("mallopt");
  if (tune != NULL && tune(M_MMAP_THRESHOLD, 128 << 10) != 1) return false;
  void (*const statistics)(void) = (void (*)(void))find("malloc_stats");
  if (statistics != NULL) write_statistics(statistics);
  size_t (*const segment)(void) = (size_t(*)(void))find("ts_data_segment_size");
  size_t (*const free_space)(void) = (size_t(*)(void))find("ts_data_segment_free_space_size");
  return segment == NULL || free_space == NULL || free_space() <= segment();
}

// Whether a function by that name keeps `errno` where it must.
static bool free_keeps_errno(Find find) {
  Free const release = (Free)find("free");
  void* const block = ((void* (*)(size_t))find("malloc"))(3 << 20);
  errno = 4711;
  release(block);
  release(NULL);
  return errno == 4711;
}

typedef struct Part {
  const char* name;
  bool (*works)(Find find);
  unsigned functions;
} Part;

const char* use_every_function(void* (*find)(const char* name), unsigned* called) {
  static const Part parts[] = {
      {"realloc", resizing_works, 1},
      {"posix_memalign", posix_memalign_works, 1},
      {"a sized function", sized_functions_work, 9},
      {"a report", reports_work, 6},
      {"free", free_keeps_errno, 1},
  };
  *called = 0;
  ((Free)find("free"))(NULL);
  for (size_t i = 0; i < sizeof allocators / sizeof *allocators; ++i) {
    if (find(allocators[i].name) == NULL) continue;
    ++*called;
    if (!allocator_works(find, &allocators[i])) return allocators[i].name;
  }
  for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i) {
    *called += parts[i].functions;
    if (!parts[i].works(find)) return parts[i].name;
  }
  return NULL;
}

void* find_in_program(const char* name) { return dlsym(RTLD_DEFAULT, name); }
