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
#include <sys/syscall.h>
#include <unistd.h>

typedef void* (*Find)(const char* name);
typedef void (*Free)(void*);

// The arguments, besides the block, of a function that returns a block, and of one that frees it.
enum Form { size, count_size, alignment_size, size_alignment, size_tag, size_alignment_tag };
enum Back { nothing, by_size, by_alignment, by_size_alignment, by_tag, by_alignment_tag };

typedef struct Pair {
  const char* allocate;
  enum Form form;
  size_t alignment;
  const char* release;
  enum Back back;
} Pair;

// Every operator at least once.
static const Pair pairs[] = {
    {"calloc", count_size, 16, "free", nothing},
    {"malloc", size, 16, "free", nothing},
    {"malloc", size, 16, "free_sized", by_size},
    {"valloc", size, 4096, "free", nothing},
    {"pvalloc", size, 4096, "cfree", nothing},
    {"memalign", alignment_size, 256, "free", nothing},
    {"aligned_alloc", alignment_size, 64, "free", nothing},
    {"_Znwm", size, 16, "_ZdlPv", nothing},
    {"_Znam", size, 16, "_ZdaPv", nothing},
    {"_Znwm", size, 16, "_ZdlPvm", by_size},
    {"_Znam", size, 16, "_ZdaPvm", by_size},
    {"_ZnwmRKSt9nothrow_t", size_tag, 16, "_ZdlPvRKSt9nothrow_t", by_tag},
    {"_ZnamRKSt9nothrow_t", size_tag, 16, "_ZdaPvRKSt9nothrow_t", by_tag},
    {"_ZnwmSt11align_val_t", size_alignment, 128, "_ZdlPvSt11align_val_t", by_alignment},
    {"_ZnamSt11align_val_t", size_alignment, 128, "_ZdaPvSt11align_val_t", by_alignment},
    {"_ZnwmSt11align_val_t", size_alignment, 64, "_ZdlPvmSt11align_val_t", by_size_alignment},
    {"_ZnamSt11align_val_t", size_alignment, 64, "_ZdaPvmSt11align_val_t", by_size_alignment},
    {"_ZnwmSt11align_val_tRKSt9nothrow_t", size_alignment_tag, 64,
     "_ZdlPvSt11align_val_tRKSt9nothrow_t", by_alignment_tag},
    {"_ZnamSt11align_val_tRKSt9nothrow_t", size_alignment_tag, 64,
     "_ZdaPvSt11align_val_tRKSt9nothrow_t", by_alignment_tag},
};

static const char tag = 0;  // for a reference to std::nothrow

static const size_t sizes[] = {0, 1, 100, 5000, 40000, 2 << 20};
enum { size_count = sizeof sizes / sizeof *sizes };

static void* allocate(void* function, const Pair* how, size_t bytes) {
  switch (how->form) {
    case size:
      return ((void* (*)(size_t))function)(bytes);
    case count_size:
      return ((void* (*)(size_t, size_t))function)(1, bytes);
    case alignment_size:
      return ((void* (*)(size_t, size_t))function)(how->alignment, bytes);
    case size_alignment:
      return ((void* (*)(size_t, size_t))function)(bytes, how->alignment);
    case size_tag:
      return ((void* (*)(size_t, const void*))function)(bytes, &tag);
    case size_alignment_tag:
      return ((void* (*)(size_t, size_t, const void*))function)(bytes, how->alignment, &tag);
  }
  return NULL;
}

static void release(void* function, const Pair* how, void* block, size_t bytes) {
  switch (how->back) {
    case nothing:
      return ((void (*)(void*))function)(block);
    case by_size:
      return ((void (*)(void*, size_t))function)(block, bytes);
    case by_alignment:
      return ((void (*)(void*, size_t))function)(block, how->alignment);
    case by_size_alignment:
      return ((void (*)(void*, size_t, size_t))function)(block, bytes, how->alignment);
    case by_tag:
      return ((void (*)(void*, const void*))function)(block, &tag);
    case by_alignment_tag:
      return ((void (*)(void*, size_t, const void*))function)(block, how->alignment, &tag);
  }
}

static bool is_filled(const unsigned char* block, size_t bytes, unsigned char with) {
  for (size_t i = 0; i < bytes; i += bytes < 512 || i < 128 || i + 128 > bytes ? 1 : 97) {
    if (block[i] != with) return false;
  }
  return true;
}

// The alignment required of a block of this size: unless the program asks for more, no object in it
// needs more than its own size.
static size_t least_alignment(const Pair* how, size_t bytes) {
  if (how->alignment > 16 || bytes >= 16) return how->alignment;
  size_t alignment = 1;
  while (alignment * 2 <= bytes) alignment *= 2;
  return alignment;
}

// All sizes are live at once.
static bool pair_works(void* take, void* give_back, const Pair* how) {
  unsigned char* block[size_count];
  bool works = true;
  for (size_t i = 0; i < size_count; ++i) {
    block[i] = allocate(take, how, sizes[i]);
    if (block[i] == NULL || (uintptr_t)block[i] % least_alignment(how, sizes[i]) != 0) return false;
    if (how->form == count_size) works = works && is_filled(block[i], sizes[i], 0);
    memset(block[i], (int)i + 1, sizes[i]);
  }
  for (size_t i = 0; i < size_count; ++i) {
    works = works && is_filled(block[i], sizes[i], (unsigned char)(i + 1));
    release(give_back, how, block[i], sizes[i]);
  }
  return works;
}

static bool resizing_works(Find find) {
  void* (*const resize)(void*, size_t) = (void* (*)(void*, size_t))find("realloc");
  Free const give_back = (Free)find("free");
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
  give_back(block);
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

// Those that take a block and report on it, or take it with its size.
static bool sized_functions_work(Find find) {
  void* (*const allocate_plain)(size_t) = (void* (*)(size_t))find("malloc");
  Free const give_back = (Free)find("free");
  size_t (*const usable)(void*) = (size_t(*)(void*))find("malloc_usable_size");
  void* block = allocate_plain(100);
  if (block == NULL || usable(block) < 100 || usable(NULL) != 0) return false;
  give_back(block);
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
  size_t (*const ts_good_size)(size_t, size_t) = (size_t(*)(size_t, size_t))find("ts_good_size");
  if (ts_good_size != NULL && ts_good_size(100, 64) < 100) return false;
  size_t (*const ts_usable_size)(const void*) = (size_t(*)(const void*))find("ts_usable_size");
  if (ts_usable_size != NULL && ts_usable_size(NULL) != 0) return false;
  int (*const owns)(const void*) = (int (*)(const void*))find("ts_owns");
  int (*const block_of)(const void*, void*, void*) =
      (int (*)(const void*, void*, void*))find("ts_block_of");
  if (owns != NULL && (owns(NULL) != 0 || block_of(&owns, NULL, NULL) != 0)) return false;
  void* (*const rezalloc)(void*, size_t, size_t) =
      (void* (*)(void*, size_t, size_t))find("ts_rezalloc");
  void* (*const aligned_at_least)(size_t, size_t, size_t*) =
      (void* (*)(size_t, size_t, size_t*))find("ts_alloc_at_least");
  int (*const expand)(void*, size_t) = (int (*)(void*, size_t))find("ts_expand");
  if (rezalloc != NULL) {
    char* const grown = rezalloc(aligned_at_least(100, 64, NULL), 100, 1000);
    if (grown == NULL || grown[999] != 0 || expand(grown, 1000) != 1) return false;
    give_back(grown);
  }
  struct Sized {
    void* block;
    size_t bytes;
  };
  struct Sized (*const at_least)(size_t) = (struct Sized(*)(size_t))find("alloc_at_least");
  if (at_least != NULL) {
    const struct Sized got = at_least(1000);
    if (got.block == NULL || got.bytes < 1000) return false;
    memset(got.block, 1, got.bytes);
    give_back(got.block);
    if (at_least(SIZE_MAX).block != NULL) return false;
  }
  return true;
}

// With /dev/null as standard error; by system calls, since libc's functions are cancellation
// points.
static void write_statistics(void (*write_them)(void)) {
  static atomic_flag is_taken = ATOMIC_FLAG_INIT;  // standard error belongs to the whole process
  while (atomic_flag_test_and_set(&is_taken)) sched_yield();
  const int kept = dup(STDERR_FILENO);
  const int nowhere = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_WRONLY | O_CLOEXEC);
  if (kept >= 0 && nowhere >= 0) {
    dup2(nowhere, STDERR_FILENO);
    write_them();
    dup2(kept, STDERR_FILENO);
  }
  syscall(SYS_close, kept);
  syscall(SYS_close, nowhere);
  atomic_flag_clear(&is_taken);
}

// Also in a library without arenas.
static bool scopes_work(Find find, void* (*create)(void), int (*enter)(void*)) {
  int (*const leave)(void) = (int (*)(void))find("ts_scope_leave");
  int (*const destroy)(void*) = (int (*)(void*))find("ts_arena_destroy");
  void* const arena = create();
  const int error = enter(arena);
  if (arena == NULL) return error == ENOTSUP && destroy(arena) == ENOTSUP;
  void* const block = ((void* (*)(size_t))find("malloc"))(1000);
  if (block == NULL) return false;
  if (error == 0) return leave() == 0 && destroy(arena) == 0;
  // In its last destructors a thread has no heap to return to, so it is in no scope.
  ((Free)find("free"))(block);
  return error == ENOMEM && leave() == EINVAL && destroy(arena) == 0;
}

static int count_piece(const void* extent, void* count) {
  (void)extent;
  return ++*(size_t*)count == SIZE_MAX;
}

static bool reports_work(Find find) {
  struct mallinfo2 (*const info)(void) = (struct mallinfo2(*)(void))find("mallinfo2");
  if (info != NULL) {
    const struct mallinfo2 now = info();  // other threads may change it meanwhile
    if (now.uordblks > now.arena + now.hblkhd) return false;
  }
  struct mallinfo (*const old_info)(void) = (struct mallinfo(*)(void))find("mallinfo");
  if (old_info != NULL) old_info();
  // It must fail before it reads its stream: an audit library's would belong to another C library.
  int (*const as_xml)(int, FILE*) = (int (*)(int, FILE*))find("malloc_info");
  if (as_xml != NULL && as_xml(1, NULL) == 0) return false;
  int (*const trim)(size_t) = (int (*)(size_t))find("malloc_trim");
  if (trim != NULL) trim(0);
  int (*const tune)(int, int) = (int (*)(int, int))find("mallopt");
  if (tune != NULL && tune(M_MMAP_THRESHOLD, 128 << 10) != 1) return false;
  int (*const ts_trim)(size_t) = (int (*)(size_t))find("ts_trim");
  if (ts_trim != NULL && (unsigned)ts_trim(0) > 1) return false;
  int (*const housekeep)(void) = (int (*)(void))find("ts_housekeep");
  if (housekeep != NULL && (housekeep() < -1 || housekeep() > 200)) return false;
  void* (*const create)(void) = (void* (*)(void))find("ts_arena_create");
  int (*const enter)(void*) = (int (*)(void*))find("ts_scope_enter");
  if (create != NULL && enter != NULL && !scopes_work(find, create, enter)) return false;
  size_t (*const purge)(void) = (size_t(*)(void))find("ts_purge");
  if (purge != NULL) purge();
  void (*const flush_thread)(void) = (void (*)(void))find("ts_thread_flush");
  if (flush_thread != NULL) flush_thread();
  int (*const stats)(void*, size_t) = (int (*)(void*, size_t))find("ts_stats");
  size_t figures[2] = {0, SIZE_MAX};
  if (stats != NULL && (stats(figures, sizeof figures) != 1 || figures[1] > figures[0]))
    return false;
  int (*const visit)(int, int (*)(const void*, void*), void*) =
      (int (*)(int, int (*)(const void*, void*), void*))find("ts_visit");
  size_t pieces = 0;
  // Checks pages: for blocks, other threads would have to wait.
  if (visit != NULL && visit(0, count_piece, &pieces) == 0 && pieces == 0) return false;
  int (*const write)(int, int) = (int (*)(int, int))find("ts_stats_write");
  if (write != NULL && write(-1, 0) == 0) return false;
  int (*const version)(void) = (int (*)(void))find("ts_version");
  if (version != NULL && version() <= 0) return false;
  void (*const statistics)(void) = (void (*)(void))find("malloc_stats");
  if (statistics != NULL) write_statistics(statistics);
  size_t (*const segment)(void) = (size_t(*)(void))find("ts_data_segment_size");
  size_t (*const free_space)(void) = (size_t(*)(void))find("ts_data_segment_free_space_size");
  if (segment == NULL || free_space == NULL) return true;
  const size_t free_bytes = free_space();  // first, since other threads grow the segment meanwhile
  return free_bytes <= segment();
}

// Whether the named function must preserve `errno`.
static bool free_keeps_errno(Find find) {
  Free const give_back = (Free)find("free");
  void* const block = ((void* (*)(size_t))find("malloc"))(3 << 20);
  errno = 4711;
  give_back(block);
  give_back(NULL);
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
      {"a function that tells sizes or takes them", sized_functions_work, 13},
      {"a report", reports_work, 15},
      {"free", free_keeps_errno, 1},
  };
  *called = 0;
  ((Free)find("free"))(NULL);
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; ++i) {
    void* const take = find(pairs[i].allocate);
    void* const give_back = find(pairs[i].release);
    if (take == NULL || give_back == NULL) continue;
    *called += 2;
    if (!pair_works(take, give_back, &pairs[i])) return pairs[i].allocate;
  }
  for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i) {
    *called += parts[i].functions;
    if (!parts[i].works(find)) return parts[i].name;
  }
  return NULL;
}

// Functions of the malloc family that the tested library leaves to libc return libc's own blocks.
void* find_in_program(const char* name) {
  void* const function = dlsym(RTLD_DEFAULT, name);
  Dl_info its;
  Dl_info mallocs;
  if (function == NULL || strncmp(name, "_Z", 2) == 0) return function;
  if (dladdr(function, &its) == 0 || dladdr(dlsym(RTLD_DEFAULT, "malloc"), &mallocs) == 0)
    return NULL;
  return its.dli_fbase == mallocs.dli_fbase ? function : NULL;
}
