// libc functions that return or keep memory: they call malloc by name, so their blocks are the
// tested allocator's, with its usable sizes, and can be passed to its realloc and free.
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <malloc.h>
#include <regex.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "check.h"

// What every block of the allocator allows: it reports its size, grows with its contents, and can
// be freed.
static void expect_ours(char* block, size_t bytes, const char* origin) {
  REQUIRE(block != NULL, "%s returned null", origin);
  EXPECT(malloc_usable_size(block) >= bytes, "%s returned %zu usable bytes, with %zu in use",
         origin, malloc_usable_size(block), bytes);
  char copy[64];
  const size_t compared = bytes < sizeof copy ? bytes : sizeof copy;
  memcpy(copy, block, compared);
  char* grown = realloc(block, bytes + 100000);
  REQUIRE(grown != NULL, "realloc of what %s returned is null", origin);
  EXPECT(memcmp(copy, grown, compared) == 0, "realloc of what %s returned lost its contents",
         origin);
  free(grown);
}

CHECK("strdup, strndup and wcsdup") {
  expect_ours(strdup("a string"), 9, "strdup");
  expect_ours(strndup("a string", 3), 4, "strndup");
  expect_ours((char*)wcsdup(L"wide"), 5 * sizeof(wchar_t), "wcsdup");
}

CHECK("asprintf and open_memstream") {
  char* text = NULL;
  const int length = asprintf(&text, "%0500d", 7);
  EXPECT(length == 500, "asprintf returned %d", length);
  expect_ours(text, 501, "asprintf");
  size_t written = 0;
  FILE* stream = open_memstream(&text, &written);
  REQUIRE(stream != NULL, "open_memstream: %s", strerror(errno));
  for (int i = 0; i < 10000; ++i) fprintf(stream, "%d\n", i);
  fclose(stream);
  EXPECT(written == 48890, "open_memstream collected %zu bytes", written);
  expect_ours(text, written + 1, "open_memstream");
}

CHECK("getline and getdelim") {
  FILE* stream = tmpfile();
  REQUIRE(stream != NULL, "tmpfile: %s", strerror(errno));
  for (int i = 0; i < 1000; ++i) fprintf(stream, "%0*d\n", i + 1, i);
  rewind(stream);
  char* line = NULL;
  size_t capacity = 0;
  for (int i = 0; i < 1000; ++i) {
    const ssize_t length =
        i % 2 == 0 ? getline(&line, &capacity, stream) : getdelim(&line, &capacity, '\n', stream);
    EXPECT(length == i + 2, "line %d has %zd bytes", i, length);
    EXPECT(capacity <= malloc_usable_size(line), "getline claims %zu bytes of %zu", capacity,
           malloc_usable_size(line));
  }
  fclose(stream);
  expect_ours(line, 1001, "getline");
}

CHECK("getcwd, realpath and scandir") {
  char* directory = getcwd(NULL, 0);
  REQUIRE(directory != NULL, "getcwd: %s", strerror(errno));
  expect_ours(directory, strlen(directory) + 1, "getcwd");
  char* resolved = realpath("/proc/self/exe", NULL);
  REQUIRE(resolved != NULL, "realpath: %s", strerror(errno));
  expect_ours(resolved, strlen(resolved) + 1, "realpath");
  struct dirent** entries = NULL;
  const int count = scandir("/", &entries, NULL, alphasort);
  EXPECT(count > 2, "scandir found %d entries", count);
  for (int i = 0; i < count; ++i) free(entries[i]);
  free(entries);
}

// Not interposed: libc's own computes the product and calls our realloc.
CHECK("reallocarray") {
  char* array = reallocarray(NULL, 10, 100);
  REQUIRE(array != NULL, "null");
  fill(array, 1000, 1);
  array = reallocarray(array, 1000, 100);
  REQUIRE(array != NULL, "null");
  EXPECT_FILLED(array, 1000, 1);
  errno = 0;
  void* refused = reallocarray(array, opaque(SIZE_MAX / 16 + 2), 16);
  EXPECT(refused == NULL && errno == ENOMEM,
         "reallocarray with an overflowing product is %p with errno %d", refused, errno);
  expect_ours(array, 1000, "reallocarray");
}

static int compare_ints(const void* a, const void* b) {
  return (*(const int*)a > *(const int*)b) - (*(const int*)a < *(const int*)b);
}

CHECK("qsort, tsearch, regcomp, newlocale and stdio") {
  enum { count = 200000 };
  int* numbers = malloc(count * sizeof *numbers);
  uint64_t random = 11;
  for (size_t i = 0; i < count; ++i) numbers[i] = (int)next_random(&random);
  qsort(numbers, count, sizeof *numbers, compare_ints);  // allocates its merge space
  void* tree = NULL;
  for (size_t i = 0; i < 1000; ++i) {
    EXPECT(i == 0 || numbers[i - 1] <= numbers[i], "qsort left %d before %d", numbers[i - 1],
           numbers[i]);
    tsearch(&numbers[i], &tree, compare_ints);
  }
  for (size_t i = 0; i < 1000; ++i) tdelete(&numbers[i], &tree, compare_ints);
  free(numbers);
  regex_t pattern;
  REQUIRE(regcomp(&pattern, "^(a|b)*c{2,5}$", REG_EXTENDED) == 0, "regcomp failed");
  EXPECT(regexec(&pattern, "ababcc", 0, NULL, 0) == 0, "regexec found no match");
  regfree(&pattern);
  locale_t locale = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
  if (locale != (locale_t)0) freelocale(locale);
  for (int i = 0; i < 200; ++i) {
    FILE* file = fopen("/proc/self/status", "r");
    REQUIRE(file != NULL, "fopen: %s", strerror(errno));
    char word[16];
    EXPECT(fscanf(file, "%15s", word) == 1, "nothing to read");
    fclose(file);
  }
}
