// The functions that report on the heap or trim it. Where an allocator leaves them to libc they
// report on an unused heap, so the checks of numbers are skipped if mallinfo2 is libc's and malloc
// is not.
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

// Deprecated in favour of mallinfo2, but programs still call it.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

enum { large = 8 << 20 };

static void require_own(const char* function) {
  if (!library_has(function)) skip_check("the allocator leaves this function to libc");
}

static size_t used_bytes(void) {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

CHECK("mallinfo2 counts what is in use") {
  require_own("mallinfo2");
  const size_t before = used_bytes();
  char* block = written(large);
  const size_t with_block = used_bytes();
  EXPECT(with_block >= before + large, "%zu bytes in use before, %zu with a block of %d", before,
         with_block, large);
  free(opaque_pointer(block));
  const size_t after = used_bytes();
  EXPECT(after < with_block - large / 2, "%zu bytes in use with the block, %zu after its free",
         with_block, after);
  const struct mallinfo2 info = mallinfo2();
  EXPECT(info.arena + info.hblkhd >= info.uordblks + info.fordblks,
         "arena %zu, in use %zu, free %zu", info.arena, info.uordblks, info.fordblks);
}

CHECK("mallinfo agrees with mallinfo2") {
  require_own("mallinfo");
  require_own("mallinfo2");
  void* block = malloc(large);
  REQUIRE(block != NULL, "null");
  const struct mallinfo2 wide = mallinfo2();
  const struct mallinfo narrow = mallinfo();
  EXPECT((size_t)narrow.arena == wide.arena, "arena %d and %zu", narrow.arena, wide.arena);
  EXPECT((size_t)narrow.uordblks == wide.uordblks, "uordblks %d and %zu", narrow.uordblks,
         wide.uordblks);
  EXPECT((size_t)narrow.fordblks == wide.fordblks, "fordblks %d and %zu", narrow.fordblks,
         wide.fordblks);
  free(block);
}

CHECK("malloc_info writes XML") {
  char* text = NULL;
  size_t length = 0;
  FILE* stream = open_memstream(&text, &length);
  REQUIRE(stream != NULL, "open_memstream: %s", strerror(errno));
  const int result = malloc_info(0, stream);
  fclose(stream);
  EXPECT(result == 0, "malloc_info returned %d", result);
  EXPECT(strncmp(text, "<malloc version=\"1\">", 20) == 0, "it begins with %.40s", text);
  EXPECT(strstr(text, "</malloc>") != NULL, "no </malloc> in %zu bytes", length);
  EXPECT(strstr(text, "<system type=\"current\" size=\"") != NULL,
         "no current system size in %zu bytes", length);
  free(text);
}

CHECK("malloc_info refuses unknown options") {
  FILE* stream = fopen("/dev/null", "w");
  REQUIRE(stream != NULL, "cannot open /dev/null: %s", strerror(errno));
  EXPECT(malloc_info(1, stream) == EINVAL, "malloc_info(1, ...) returned %d",
         malloc_info(1, stream));
  fclose(stream);
}

// The number after `key` in the text; -1 if the key is missing.
static long long number_after(const char* text, const char* key) {
  const char* const at = strstr(text, key);
  return at != NULL ? strtoll(at + strlen(key), NULL, 10) : -1;
}

// In the library that reports this, the free memory outside caches is the sum of its parts.
CHECK("malloc_info tells where the memory is") {
  enum { count = 4096, bytes = 848 };
  void* blocks[count];
  for (int i = 0; i < count; ++i) blocks[i] = malloc(bytes);
  for (int i = 0; i < count; ++i) {
    if (i % 20 != 0) free(blocks[i]);
  }
  malloc_trim(0);
  char* text = NULL;
  size_t length = 0;
  FILE* const stream = open_memstream(&text, &length);
  REQUIRE(stream != NULL, "open_memstream: %s", strerror(errno));
  REQUIRE(malloc_info(0, stream) == 0, "malloc_info failed");
  fclose(stream);
  const long long in_slabs = number_after(text, "\"in slabs\" size=\"");
  if (in_slabs >= 0) {
    const long long free_bytes = number_after(strstr(text, "\"rest\""), "size=\"");
    const long long returned = number_after(text, "\"returned\" size=\"");
    const long long parts = in_slabs + number_after(text, "\"in spans\" size=\"") + returned;
    EXPECT(parts == free_bytes, "of %lld free bytes, %lld are told", free_bytes, parts);
    EXPECT(returned > 0, "malloc_trim gave nothing back");
    EXPECT(number_after(text, "tables size=\"") > 0, "there are no tables");
  }
  free(text);
  for (int i = 0; i < count; i += 20) free(blocks[i]);
}

CHECK("malloc_stats writes to standard error") {
  int ends[2];
  REQUIRE(pipe(ends) == 0, "pipe: %s", strerror(errno));
  const int kept = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  malloc_stats();
  fflush(stderr);
  dup2(kept, STDERR_FILENO);
  close(ends[1]);
  char text[4096];
  const ssize_t length = read(ends[0], text, sizeof text);
  EXPECT(length > 0, "malloc_stats wrote nothing");
}

CHECK("malloc_trim keeps live blocks") {
  enum { blocks = 4000 };
  static char* block[blocks];
  for (size_t i = 0; i < blocks; ++i) block[i] = filled(4000, i);
  for (size_t i = 0; i < blocks; ++i) {
    if (i % 16 != 0) free(block[i]);
  }
  for (size_t keep = 0; keep <= 1 << 20; keep = keep * 4 + 4096) {
    const int result = malloc_trim(keep);
    EXPECT(result == 0 || result == 1, "malloc_trim(%zu) returned %d", keep, result);
  }
  for (size_t i = 0; i < blocks; i += 16) {
    EXPECT_FILLED(block[i], 4000, i);
    free(block[i]);
  }
  malloc_trim(0);
  char* block_after = filled(1 << 20, 9);
  free(block_after);
}

CHECK("malloc_trim gives a freed heap back") {
  require_own("malloc_trim");
  enum { blocks = 16384, bytes = 4000 };
  static void* block[blocks];
  for (size_t i = 0; i < blocks; ++i) block[i] = written(bytes);
  const size_t with_blocks = resident_bytes();
  for (size_t i = 0; i < blocks; ++i) free(block[i]);
  malloc_trim(0);
  const size_t after = resident_bytes();
  EXPECT(after < with_blocks - (size_t)blocks * bytes / 2,
         "resident: %zu bytes with the blocks, %zu after free and malloc_trim(0)", with_blocks,
         after);
}

// glibc's malloc_info does not fit into the smallest stack.
static void* report_unbuffered(void* unused) {
  malloc_stats();
  if (library_is_ours()) malloc_info(0, stderr);
  return unused;
}

// For glibc programs; musl has threads of 2 KiB.
CHECK("malloc_stats and malloc_info fit the smallest stack") {
  enum { smallest = 16 << 10 };
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_t thread;
  const bool is_created = pthread_attr_setstacksize(&small, smallest) == 0 &&
                          pthread_create(&thread, &small, report_unbuffered, NULL) == 0;
  if (!is_created) skip_check("the C library starts no thread with so small a stack");
  pthread_join(thread, NULL);
}
