// Classes of misuse that hardened allocators exist for: besides those of misuse.c, what the tests
// of hardened_malloc and scudo require, and what the allocator in force does with each (classes.h).
// We took the lists of classes, not the tests: https://github.com/GrapheneOS/hardened_malloc,
// test/; https://github.com/llvm/llvm-project, compiler-rt/test/scudo/standalone/.
#include <dlfcn.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "classes.h"

enum { small = 120, large = 300000, page = 4096 };

// Not every allocator has this function.
static void* find(const char* name) {
  void* const function = dlsym(RTLD_DEFAULT, name);
  if (function == NULL) _exit(2);
  return function;
}

// ---- writing and reading out of bounds ----

static void overflow(size_t block_bytes, size_t overflow_bytes) {
  char* const a = get(block_bytes);
  memset(opaque(a + malloc_usable_size(a)), 1, overflow_bytes);
  put(a);
}
CLASS("overflow of 1 byte", small) { overflow(small, 1); }
CLASS("overflow of 8 bytes", small) { overflow(small, 8); }
CLASS("overflow of 1 byte, 300 kB", large) { overflow(large, 1); }
CLASS("overflow of 8 bytes, 300 kB", large) { overflow(large, 8); }

// In a block whose last byte is the last one of a page.
CLASS("overflow of 1 byte, whole pages", large) { overflow(64 * page, 1); }

CLASS("overflow of a page, aligned to 1 MiB", large) {
  char* const a = opaque(aligned_alloc(1 << 20, large));
  memset(opaque(a), 1, malloc_usable_size(a) + page);
  put(a);
}

CLASS("overflow, then realloc", small) {
  char* const a = get(small);
  memset(opaque(a + malloc_usable_size(a)), 1, 8);
  put(realloc(opaque(a), 2 * small));
}

CLASS("overflow, then malloc_usable_size", small) {
  char* const a = get(small);
  memset(opaque(a + malloc_usable_size(a)), 1, 8);
  malloc_usable_size(opaque(a));
}

CLASS("overflow of 1 MiB", small) {
  char* const a = get(small);
  for (size_t i = 0; i < 1 << 20; ++i) *(volatile char*)(a + i) = 1;
}

CLASS("overflow by a string", small) {
  static const char text[] =
      "a text that is as long as the block that it is copied to, by no means";
  char* const a = get(small);
  const size_t usable = malloc_usable_size(a);
  memset(opaque(a), 'x', usable);
  strcpy(opaque(a + usable - 10), text);
  put(a);
}

// For requests that do not fill the allocator's block.
static void overflow_of_odd(size_t bytes) {
  char* const a = opaque(malloc(bytes));
  if (a == NULL) _exit(2);
  memset(a, 'x', bytes);
  *(char*)opaque(a + bytes) = 1;
  put(a);
}
CLASS("overflow of 1 byte, odd size", small) { overflow_of_odd(101); }
CLASS("overflow of 1 byte, odd size of 5 kB", 5001) { overflow_of_odd(5001); }
CLASS("overflow of 1 byte, odd size of 300 kB", large) { overflow_of_odd(large + 1); }

// Terminates a string that is one letter too long; with two zeros, one of wide characters.
static void overflow_by_zeros(size_t bytes, size_t zeros) {
  char* const a = get(bytes);
  memset(opaque(a + bytes), 0, zeros);
  put(a);
}
CLASS("overflow of a zero", small) { overflow_by_zeros(small, 1); }
CLASS("overflow of a zero, odd size", small) { overflow_by_zeros(101, 1); }
CLASS("overflow of a zero, 300 kB", large) { overflow_by_zeros(large, 1); }
CLASS("overflow of two zeros", small) { overflow_by_zeros(small, 2); }
CLASS("overflow of two zeros, odd size", small) { overflow_by_zeros(101, 2); }
CLASS("overflow of two zeros, 300 kB", large) { overflow_by_zeros(large, 2); }

CLASS("overflow of 1 byte after shrinking realloc", small) {
  char* const a = opaque(realloc(get(110), 105));
  *(char*)opaque(a + 105) = 1;
  put(a);
}

// Whether an unterminated string runs on into what follows it.
static void string_without_end_of(size_t bytes) {
  char* const a = get(bytes);
  const size_t usable = malloc_usable_size(a);
  memset(opaque(a), 'x', usable);
  say(strlen(opaque(a)) == usable ? sees_zeros : sees_old_contents);
}
CLASS("unterminated string", small) { string_without_end_of(small); }
CLASS("unterminated string, odd size", small) { string_without_end_of(101); }
// In a slot with one byte of room.
CLASS("unterminated string, 1 byte short of a slot", small) { string_without_end_of(small - 1); }
CLASS("unterminated string, odd size of 5 kB", 5001) { string_without_end_of(5001); }
CLASS("unterminated string, 64 KiB", 65536) { string_without_end_of(65536); }
CLASS("unterminated string, 300 kB", large) { string_without_end_of(large); }

CLASS("underflow", small) {
  char* block[40];
  for (int i = 0; i < 40; ++i) block[i] = get(small);
  for (int i = 0; i < 40; ++i) *(char*)opaque(block[i] - 1) ^= 1;
  for (int i = 0; i < 40; ++i) put(block[i]);
}

CLASS("underflow, 300 kB", large) {
  char* const a = get(large);
  *(char*)opaque(a - 1) = 1;
}

// The first of two adjacent blocks, as close to each other as possible.
static char* first_of_two(char** second) {
  enum { most = 400 };
  static char* block[most];
  for (int i = 0; i < most; ++i) block[i] = get(small);
  char* first = NULL;
  for (int i = 0; i < most; ++i) {
    for (int j = 0; j < most; ++j) {
      if (block[j] > block[i] && (first == NULL || block[j] - block[i] < *second - first)) {
        first = block[i];
        *second = block[j];
      }
    }
  }
  return first;
}
CLASS("underflow to a block in use", small) {
  char* second = NULL;
  first_of_two(&second);
  *(char*)opaque(second - 1) ^= 1;
  put(second);
}
CLASS("underflow to a free block", small) {
  char* second = NULL;
  put(first_of_two(&second));
  *(char*)opaque(second - 1) ^= 1;
  put(second);
}
CLASS("underflow, then realloc", small) {
  char* second = NULL;
  first_of_two(&second);
  *(char*)opaque(second - 8) ^= 1;
  put(realloc(opaque(second), 2 * small));
}

CLASS("write past the end after shrinking realloc", large) {
  char* const a = opaque(realloc(get(2 * large), large));
  *(char*)opaque(a + large + 3 * page) = 1;
}

CLASS("read past the end after shrinking realloc", large) {
  char* const a = opaque(realloc(get(2 * large), large));
  say(*(char*)opaque(a + large + 3 * page) != 0 ? sees_old_contents : sees_zeros);
}

CLASS("read of 0 bytes", small) {
  char* const a = opaque(malloc(0));
  opaque((void*)(uintptr_t) * (volatile char*)a);
}
CLASS("write to 0 bytes", small) {
  char* const a = opaque(malloc(0));
  *(volatile char*)a = 1;
}

// ---- after a free ----

static void look_for_contents(const char* a, size_t bytes) {
  bool is_zero = true;
  for (size_t i = 0; i < bytes; ++i) is_zero = is_zero && *(const volatile char*)(a + i) == 0;
  say(is_zero ? sees_zeros : sees_old_contents);
}

CLASS("read after free", small) {
  char* const a = freed(small);
  look_for_contents(opaque(a), small);
}

CLASS("read after free, 300 kB", large) {
  char* const a = freed(large);
  look_for_contents(opaque(a), large);
}

CLASS("write after free, 300 kB", large) {
  char* const a = freed(large);
  *(char*)opaque(a + 100) = 1;
}

// Large blocks come and go, one of which may take its place.
CLASS("write after free, 300 kB, others between", large) {
  char* const a = freed(large);
  for (int i = 0; i < 10; ++i) put(get(large));
  *(char*)opaque(a + 100) = 1;
}

CLASS("write after free, then 100000 others", small) {
  char* const a = freed(small);
  get(small);
  *(char*)opaque(a + 65) = 'a';
  for (int i = 0; i < 100000; ++i) put(opaque(malloc(small)));
}

// Frees more than the allocator keeps.
CLASS("write after free, then 20000 frees", small) {
  enum { most = 20000 };
  static char* block[most];
  for (int i = 0; i < most; ++i) block[i] = get(small);
  put(block[most / 2]);
  *(char*)opaque(block[most / 2] + 65) = 'a';
  for (int i = 0; i < most; ++i) {
    if (i != most / 2) put(block[i]);
  }
}

// A new block has no contents of an earlier one.
static void contents_of_new(size_t bytes) {
  enum { most = 600 };
  static char* block[most];
  const int count = bytes > page ? 20 : most;
  for (int i = 0; i < count; ++i) block[i] = get(bytes);
  for (int i = 0; i < count; ++i) put(block[i]);
  bool is_zero = true;
  for (int i = 0; i < count; ++i) {
    const char* const a = opaque(malloc(bytes));
    for (size_t j = 0; j < bytes; ++j) is_zero = is_zero && a[j] == 0;
  }
  say(is_zero ? sees_zeros : sees_old_contents);
}
CLASS("contents of a new block", small) { contents_of_new(small); }
CLASS("contents of new 300 kB", large) { contents_of_new(large); }

static void reuse(size_t bytes) {
  char* const a = freed(bytes);
  bool is_again = false;
  for (int i = 0; i < 20; ++i) is_again = is_again || opaque(malloc(bytes)) == a;
  say(is_again ? gets_it_again : gets_others);
}
CLASS("malloc after free", small) { reuse(small); }
CLASS("malloc after free, 300 kB", large) { reuse(large); }

// ---- frees of invalid pointers ----

CLASS("double free, 100000 others between", small) {
  char* const a = freed(small);
  for (int i = 0; i < 100000; ++i) put(get(small + (size_t)i % 8));
  put(a);
}

CLASS("double free of 300 kB, another between", large) {
  char* const a = get(large);
  char* const b = get(large);
  put(a);
  put(b);
  put(a);
}

CLASS("free of an unaligned pointer", small) { put(get(small) + 1); }
CLASS("free inside a block", small) { put(get(small) + 16); }
CLASS("free of an unaligned pointer, 300 kB", large) { put(get(large) + 1); }
CLASS("free 1 MiB past a block", small) { put(get(small) + (1 << 20)); }
CLASS("free 1 GiB past a block", small) { put(get(small) + ((size_t)1 << 30)); }

static void free_of_mapping(int protection) {
  char* const mapped = mmap(NULL, 16 * page, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  put(mapped + page);
}
CLASS("free of a mapping", small) { free_of_mapping(PROT_READ | PROT_WRITE); }
CLASS("free of a protected mapping", small) { free_of_mapping(PROT_NONE); }

// An uninitialised variable's value.
static void* garbage(void) { return (void*)(uintptr_t)0x5a5a5a5a5a50; }
CLASS("free of an unset pointer", small) { put(garbage()); }
CLASS("realloc of an unset pointer", small) { opaque(realloc(opaque(garbage()), small)); }
CLASS("usable size of an unset pointer", small) {
  opaque((void*)malloc_usable_size(opaque(garbage())));
}

CLASS("usable size of a freed block", small) {
  char* const a = freed(small);
  opaque((void*)malloc_usable_size(opaque(a)));
}
CLASS("usable size inside a block", small) {
  opaque((void*)malloc_usable_size(opaque(get(small) + 16)));
}
CLASS("usable size of an unaligned pointer", small) {
  opaque((void*)malloc_usable_size(opaque(get(small) + 1)));
}

// ---- sized frees ----

typedef void (*Delete)(void*, size_t);
typedef void (*AlignedDelete)(void*, size_t, size_t);
typedef void* (*New)(size_t);
typedef void* (*AlignedNew)(size_t, size_t);

static void delete_sized(size_t bytes, size_t named) {
  const New new_ = (New)find("_Znwm");
  const Delete delete_ = (Delete)find("_ZdlPvm");
  delete_(opaque(new_(bytes)), named);
}
CLASS("sized delete, larger size", small) { delete_sized(small, 4 * small); }
CLASS("sized delete, smaller size", small) { delete_sized(4 * small, small); }
CLASS("sized delete, 1 byte more", small) { delete_sized(small - 8, small - 7); }
CLASS("sized delete, 1 byte less", small) { delete_sized(small, small - 1); }
CLASS("sized delete of 300 kB, larger size", large) { delete_sized(large, large + page); }
CLASS("sized delete of 300 kB, smaller size", large) { delete_sized(large, large - page); }
CLASS("sized delete of 300 kB, 1 byte less", large) { delete_sized(large, large - 1); }
CLASS("sized delete of a small block as 300 kB", small) { delete_sized(small, large); }
CLASS("sized delete, wrong alignment", small) {
  const AlignedNew new_ = (AlignedNew)find("_ZnwmSt11align_val_t");
  const AlignedDelete delete_ = (AlignedDelete)find("_ZdlPvmSt11align_val_t");
  delete_(opaque(new_(small, 1024)), small, 16);
}
CLASS("free_sized, larger size", small) { ((Delete)find("free_sized"))(get(small), 4 * small); }
CLASS("free_sized, smaller size", small) { ((Delete)find("free_sized"))(get(4 * small), small); }
CLASS("free_aligned_sized, wrong alignment", small) {
  void* const a = opaque(aligned_alloc(1024, small));
  ((AlignedDelete)find("free_aligned_sized"))(a, 16, small);
}
