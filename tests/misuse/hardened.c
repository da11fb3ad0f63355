// The purpose of hardened allocators: the classes of misuse that hardened_malloc's and scudo's own
// tests hold them to, beside those of misuse.c, and what the allocator in force makes of each
// (classes.h). Lists of classes, not the tests themselves: https://github.com/GrapheneOS/
// hardened_malloc, test/; https://github.com/llvm/llvm-project, compiler-rt/test/scudo/standalone/.
#include <dlfcn.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "classes.h"

enum { small = 120, large = 300000, page = 4096 };

// A function that not every allocator has.
static void* find(const char* name) {
  void* const function = dlsym(RTLD_DEFAULT, name);
  if (function == NULL) _exit(2);
  return function;
}

// ---- writing and reading outside ----

static void overflow(size_t block_bytes, size_t overflow_bytes) {
  char* const a = get(block_bytes);
  memset(opaque(a + malloc_usable_size(a)), 1, overflow_bytes);
  put(a);
}
static void overflow_of_one(void) { overflow(small, 1); }
static void overflow_of_eight(void) { overflow(small, 8); }
static void overflow_of_large_by_one(void) { overflow(large, 1); }
static void overflow_of_large_by_eight(void) { overflow(large, 8); }

// Of a block whose last byte is the last one of a page.
static void overflow_of_whole_pages(void) { overflow(64 * page, 1); }

static void overflow_of_aligned(void) {
  char* const a = opaque(aligned_alloc(1 << 20, large));
  memset(opaque(a), 1, malloc_usable_size(a) + page);
  put(a);
}

static void overflow_found_by_realloc(void) {
  char* const a = get(small);
  memset(opaque(a + malloc_usable_size(a)), 1, 8);
  put(realloc(opaque(a), 2 * small));
}

static void overflow_found_by_usable_size(void) {
  char* const a = get(small);
  memset(opaque(a + malloc_usable_size(a)), 1, 8);
  malloc_usable_size(opaque(a));
}

static void overflow_without_end(void) {
  char* const a = get(small);
  for (size_t i = 0; i < 1 << 20; ++i) *(volatile char*)(a + i) = 1;
}

static void overflow_by_a_string(void) {
  static const char text[] =
      "a text that is as long as the block that it is copied to, by no means";
  char* const a = get(small);
  const size_t usable = malloc_usable_size(a);
  memset(opaque(a), 'x', usable);
  strcpy(opaque(a + usable - 10), text);
  put(a);
}

// Of requests that do not fill a block of the allocator's.
static void overflow_of_odd(size_t bytes) {
  char* const a = opaque(malloc(bytes));
  if (a == NULL) _exit(2);
  memset(a, 'x', bytes);
  *(char*)opaque(a + bytes) = 1;
  put(a);
}
static void overflow_of_odd_small(void) { overflow_of_odd(101); }
static void overflow_of_odd_medium(void) { overflow_of_odd(5001); }
static void overflow_of_odd_large(void) { overflow_of_odd(large + 1); }

// The end of a string that has a letter too many; with two zeros, of one of wide characters.
static void overflow_by_zeros(size_t bytes, size_t zeros) {
  char* const a = get(bytes);
  memset(opaque(a + bytes), 0, zeros);
  put(a);
}
static void overflow_by_a_zero_small(void) { overflow_by_zeros(small, 1); }
static void overflow_by_a_zero_odd(void) { overflow_by_zeros(101, 1); }
static void overflow_by_a_zero_large(void) { overflow_by_zeros(large, 1); }
static void overflow_by_two_zeros_small(void) { overflow_by_zeros(small, 2); }
static void overflow_by_two_zeros_odd(void) { overflow_by_zeros(101, 2); }
static void overflow_by_two_zeros_large(void) { overflow_by_zeros(large, 2); }

static void overflow_after_realloc(void) {
  char* const a = opaque(realloc(get(110), 105));
  *(char*)opaque(a + 105) = 1;
  put(a);
}

// Whether a string without an end goes on into what lies behind it.
static void string_without_end_of(size_t bytes) {
  char* const a = get(bytes);
  const size_t usable = malloc_usable_size(a);
  memset(opaque(a), 'x', usable);
  say(strlen(opaque(a)) == usable ? sees_zeros : sees_old_contents);
}
static void string_without_end(void) { string_without_end_of(small); }
static void string_without_end_odd(void) { string_without_end_of(101); }
// In a slot with one byte of room.
static void string_without_end_short_by_one(void) { string_without_end_of(small - 1); }
static void string_without_end_medium(void) { string_without_end_of(5001); }
static void string_without_end_near_slab(void) { string_without_end_of(65536); }
static void string_without_end_large(void) { string_without_end_of(large); }

static void underflow(void) {
  char* block[40];
  for (int i = 0; i < 40; ++i) block[i] = get(small);
  for (int i = 0; i < 40; ++i) *(char*)opaque(block[i] - 1) ^= 1;
  for (int i = 0; i < 40; ++i) put(block[i]);
}

static void underflow_of_large(void) {
  char* const a = get(large);
  *(char*)opaque(a - 1) = 1;
}

// The first of two blocks that lie side by side, as near to each other as any.
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
static void underflow_to_a_block_in_use(void) {
  char* second = NULL;
  first_of_two(&second);
  *(char*)opaque(second - 1) ^= 1;
  put(second);
}
static void underflow_to_a_free_block(void) {
  char* second = NULL;
  put(first_of_two(&second));
  *(char*)opaque(second - 1) ^= 1;
  put(second);
}
static void underflow_found_by_realloc(void) {
  char* second = NULL;
  first_of_two(&second);
  *(char*)opaque(second - 8) ^= 1;
  put(realloc(opaque(second), 2 * small));
}

static void write_behind_the_end_of_shrunk(void) {
  char* const a = opaque(realloc(get(2 * large), large));
  *(char*)opaque(a + large + 3 * page) = 1;
}

static void read_behind_the_end_of_shrunk(void) {
  char* const a = opaque(realloc(get(2 * large), large));
  say(*(char*)opaque(a + large + 3 * page) != 0 ? sees_old_contents : sees_zeros);
}

static void read_of_nothing(void) {
  char* const a = opaque(malloc(0));
  opaque((void*)(uintptr_t) * (volatile char*)a);
}
static void write_to_nothing(void) {
  char* const a = opaque(malloc(0));
  *(volatile char*)a = 1;
}

// ---- after a free ----

static void look_for_contents(const char* a, size_t bytes) {
  bool is_zero = true;
  for (size_t i = 0; i < bytes; ++i) is_zero = is_zero && *(const volatile char*)(a + i) == 0;
  say(is_zero ? sees_zeros : sees_old_contents);
}

static void read_after_free(void) {
  char* const a = get(small);
  put(a);
  look_for_contents(opaque(a), small);
}

static void read_after_free_of_large(void) {
  char* const a = get(large);
  put(a);
  look_for_contents(opaque(a), large);
}

static void write_after_free_of_large(void) {
  char* const a = get(large);
  put(a);
  *(char*)opaque(a + 100) = 1;
}

// Large blocks come and go, of which one may have its place.
static void write_after_free_of_large_with_others_between(void) {
  char* const a = get(large);
  put(a);
  for (int i = 0; i < 10; ++i) put(get(large));
  *(char*)opaque(a + 100) = 1;
}

static void write_after_free_and_reuse(void) {
  char* const a = get(small);
  put(a);
  get(small);
  *(char*)opaque(a + 65) = 'a';
  for (int i = 0; i < 100000; ++i) put(opaque(malloc(small)));
}

// So much is freed that the allocator has more memory than it keeps.
static void write_after_free_among_many(void) {
  enum { most = 20000 };
  static char* block[most];
  for (int i = 0; i < most; ++i) block[i] = get(small);
  put(block[most / 2]);
  *(char*)opaque(block[most / 2] + 65) = 'a';
  for (int i = 0; i < most; ++i) {
    if (i != most / 2) put(block[i]);
  }
}

// A new block has no content of an earlier one.
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
static void contents_of_new_small(void) { contents_of_new(small); }
static void contents_of_new_large(void) { contents_of_new(large); }

static void reuse(size_t bytes) {
  char* const a = get(bytes);
  put(a);
  bool is_again = false;
  for (int i = 0; i < 20; ++i) is_again = is_again || opaque(malloc(bytes)) == a;
  say(is_again ? gets_it_again : gets_others);
}
static void reuse_of_small(void) { reuse(small); }
static void reuse_of_large(void) { reuse(large); }

// ---- frees of what is none ----

static void double_free_with_many_between(void) {
  char* const a = get(small);
  put(a);
  for (int i = 0; i < 100000; ++i) put(get(small + (size_t)i % 8));
  put(a);
}

static void double_free_of_large_with_others_between(void) {
  char* const a = get(large);
  char* const b = get(large);
  put(a);
  put(b);
  put(a);
}

static void free_of_unaligned(void) { put(get(small) + 1); }
static void free_inside(void) { put(get(small) + 16); }
static void free_of_unaligned_large(void) { put(get(large) + 1); }
static void free_behind_small(void) { put(get(small) + (1 << 20)); }
static void free_far_behind_small(void) { put(get(small) + ((size_t)1 << 30)); }

static void free_of_mapping(int protection) {
  char* const mapped = mmap(NULL, 16 * page, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  put(mapped + page);
}
static void free_of_unprotected(void) { free_of_mapping(PROT_READ | PROT_WRITE); }
static void free_of_protected(void) { free_of_mapping(PROT_NONE); }

// The value of an uninitialised variable.
static void* garbage(void) { return (void*)(uintptr_t)0x5a5a5a5a5a50; }
static void free_of_garbage(void) { put(garbage()); }
static void realloc_of_garbage(void) { opaque(realloc(opaque(garbage()), small)); }
static void usable_size_of_garbage(void) { opaque((void*)malloc_usable_size(opaque(garbage()))); }

static void usable_size_of_freed(void) {
  char* const a = get(small);
  put(a);
  opaque((void*)malloc_usable_size(opaque(a)));
}
static void usable_size_inside(void) { opaque((void*)malloc_usable_size(opaque(get(small) + 16))); }
static void usable_size_of_unaligned(void) {
  opaque((void*)malloc_usable_size(opaque(get(small) + 1)));
}

// ---- frees that name a size ----

typedef void (*Delete)(void*, size_t);
typedef void (*AlignedDelete)(void*, size_t, size_t);
typedef void* (*New)(size_t);
typedef void* (*AlignedNew)(size_t, size_t);

static void delete_sized(size_t bytes, size_t named) {
  const New new_ = (New)find("_Znwm");
  const Delete delete_ = (Delete)find("_ZdlPvm");
  delete_(opaque(new_(bytes)), named);
}
static void delete_of_more(void) { delete_sized(small, 4 * small); }
static void delete_of_less(void) { delete_sized(4 * small, small); }
static void delete_of_little_more(void) { delete_sized(small - 8, small - 7); }
static void delete_of_little_less(void) { delete_sized(small, small - 1); }
static void delete_of_more_large(void) { delete_sized(large, large + page); }
static void delete_of_less_large(void) { delete_sized(large, large - page); }
static void delete_of_little_less_large(void) { delete_sized(large, large - 1); }
static void delete_of_small_as_large(void) { delete_sized(small, large); }
static void delete_of_aligned(void) {
  const AlignedNew new_ = (AlignedNew)find("_ZnwmSt11align_val_t");
  const AlignedDelete delete_ = (AlignedDelete)find("_ZdlPvmSt11align_val_t");
  delete_(opaque(new_(small, 1024)), small, 16);
}
static void free_sized_of_more(void) { ((Delete)find("free_sized"))(get(small), 4 * small); }
static void free_sized_of_less(void) { ((Delete)find("free_sized"))(get(4 * small), small); }
static void free_sized_of_aligned(void) {
  void* const a = opaque(aligned_alloc(1024, small));
  ((AlignedDelete)find("free_aligned_sized"))(a, 16, small);
}

const Class classes[] = {
    {"overflow of 1 byte", overflow_of_one, small},
    {"overflow of 8 bytes", overflow_of_eight, small},
    {"overflow of 1 byte, 300 kB", overflow_of_large_by_one, large},
    {"overflow of 8 bytes, 300 kB", overflow_of_large_by_eight, large},
    {"overflow of 1 byte, whole pages", overflow_of_whole_pages, large},
    {"overflow of a page, aligned to 1 MiB", overflow_of_aligned, large},
    {"overflow, then realloc", overflow_found_by_realloc, small},
    {"overflow, then malloc_usable_size", overflow_found_by_usable_size, small},
    {"overflow of 1 MiB", overflow_without_end, small},
    {"overflow by a string", overflow_by_a_string, small},
    {"overflow of 1 byte, odd size", overflow_of_odd_small, small},
    {"overflow of 1 byte, odd size of 5 kB", overflow_of_odd_medium, 5001},
    {"overflow of 1 byte, odd size of 300 kB", overflow_of_odd_large, large},
    {"overflow of a zero", overflow_by_a_zero_small, small},
    {"overflow of a zero, odd size", overflow_by_a_zero_odd, small},
    {"overflow of a zero, 300 kB", overflow_by_a_zero_large, large},
    {"overflow of two zeros", overflow_by_two_zeros_small, small},
    {"overflow of two zeros, odd size", overflow_by_two_zeros_odd, small},
    {"overflow of two zeros, 300 kB", overflow_by_two_zeros_large, large},
    {"overflow of 1 byte after realloc to less", overflow_after_realloc, small},
    {"string without an end", string_without_end, small},
    {"string without an end, odd size", string_without_end_odd, small},
    {"string without an end, 1 byte short of a slot", string_without_end_short_by_one, small},
    {"string without an end, odd size of 5 kB", string_without_end_medium, 5001},
    {"string without an end, 64 KiB", string_without_end_near_slab, 65536},
    {"string without an end, 300 kB", string_without_end_large, large},
    {"underflow", underflow, small},
    {"underflow to a block in use", underflow_to_a_block_in_use, small},
    {"underflow to a free block", underflow_to_a_free_block, small},
    {"underflow, then realloc", underflow_found_by_realloc, small},
    {"underflow, 300 kB", underflow_of_large, large},
    {"write behind the end after realloc to less", write_behind_the_end_of_shrunk, large},
    {"read behind the end after realloc to less", read_behind_the_end_of_shrunk, large},
    {"read of 0 bytes", read_of_nothing, small},
    {"write to 0 bytes", write_to_nothing, small},
    {"read after free", read_after_free, small},
    {"read after free, 300 kB", read_after_free_of_large, large},
    {"write after free, 300 kB", write_after_free_of_large, large},
    {"write after free, 300 kB, others between", write_after_free_of_large_with_others_between,
     large},
    {"write after free, then 100000 others", write_after_free_and_reuse, small},
    {"write after free, then 20000 frees", write_after_free_among_many, small},
    {"contents of a new block", contents_of_new_small, small},
    {"contents of new 300 kB", contents_of_new_large, large},
    {"malloc after free", reuse_of_small, small},
    {"malloc after free, 300 kB", reuse_of_large, large},
    {"double free, 100000 others between", double_free_with_many_between, small},
    {"double free of 300 kB, another between", double_free_of_large_with_others_between, large},
    {"free of an unaligned pointer", free_of_unaligned, small},
    {"free inside of a block", free_inside, small},
    {"free of an unaligned pointer, 300 kB", free_of_unaligned_large, large},
    {"free of 1 MiB behind a block", free_behind_small, small},
    {"free of 1 GiB behind a block", free_far_behind_small, small},
    {"free of a mapping", free_of_unprotected, small},
    {"free of a protected mapping", free_of_protected, small},
    {"free of an unset pointer", free_of_garbage, small},
    {"realloc of an unset pointer", realloc_of_garbage, small},
    {"usable size of an unset pointer", usable_size_of_garbage, small},
    {"usable size of a freed block", usable_size_of_freed, small},
    {"usable size inside of a block", usable_size_inside, small},
    {"usable size of an unaligned pointer", usable_size_of_unaligned, small},
    {"sized delete of more", delete_of_more, small},
    {"sized delete of less", delete_of_less, small},
    {"sized delete of 1 byte more", delete_of_little_more, small},
    {"sized delete of 1 byte less", delete_of_little_less, small},
    {"sized delete of more than 300 kB", delete_of_more_large, large},
    {"sized delete of less than 300 kB", delete_of_less_large, large},
    {"sized delete of 1 byte less than 300 kB", delete_of_little_less_large, large},
    {"sized delete of a small block as 300 kB", delete_of_small_as_large, small},
    {"sized delete of another alignment", delete_of_aligned, small},
    {"free_sized of more", free_sized_of_more, small},
    {"free_sized of less", free_sized_of_less, small},
    {"free_aligned_sized of another alignment", free_sized_of_aligned, small},
};
const int class_count = sizeof classes / sizeof *classes;
