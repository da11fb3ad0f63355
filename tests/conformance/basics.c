// malloc and free: every size succeeds, aligned, distinct and writable, and freed memory is reused.
#include <errno.h>
#include <stdlib.h>

#include "check.h"

static const size_t sizes[] = {
    0,      1,      2,      7,      8,       9,       15,       16,      17,    23,    24,
    25,     31,     32,     33,     48,      63,      64,       65,      100,   127,   128,
    129,    255,    256,    257,    500,     512,     1000,     1023,    1024,  1025,  2048,
    4000,   4095,   4096,   4097,   8192,    10000,   16384,    32767,   32768, 65535, 65536,
    131071, 131072, 131073, 262144, 1000000, 1048576, 10000000, 67108864};

CHECK("malloc serves every size") {
  for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
    char* block = malloc(sizes[i]);
    REQUIRE(block != NULL, "malloc(%zu) is null", sizes[i]);
    EXPECT((uintptr_t)block % natural_alignment(sizes[i]) == 0, "malloc(%zu) is %p", sizes[i],
           (void*)block);
    fill(block, sizes[i], i);
    EXPECT_FILLED(block, sizes[i], i);
    free(block);
  }
}

// glibc manual, "Malloc Examples": the address is always a multiple of 16 on 64-bit systems. The C
// standard requires less below 16 bytes, and some allocators save memory there.
CHECK("sizes below 16 are aligned to 16") {
  for (size_t bytes = 0; bytes < 16; ++bytes) {
    for (int i = 0; i < 4; ++i) {
      void* block = malloc(bytes);
      EXPECT((uintptr_t)block % 16 == 0, "malloc(%zu) is %p", bytes, block);
      // Not freed, so that the next one lies elsewhere.
    }
  }
}

CHECK("all small sizes are aligned and do not overlap") {
  enum { blocks = 4097 };
  static void* block[blocks];
  for (size_t bytes = 0; bytes < blocks; ++bytes) {
    block[bytes] = malloc(bytes);
    EXPECT((uintptr_t)block[bytes] % natural_alignment(bytes) == 0, "malloc(%zu) is %p", bytes,
           block[bytes]);
    REQUIRE(block[bytes] != NULL, "malloc(%zu) is null", bytes);
    fill(block[bytes], bytes, bytes);
  }
  for (size_t bytes = 0; bytes < blocks; ++bytes) {
    EXPECT_FILLED(block[bytes], bytes, bytes);
    free(block[bytes]);
  }
}

CHECK("malloc(0) returns distinct blocks") {
  void* first = malloc(opaque(0));
  void* second = malloc(opaque(0));
  EXPECT(first != NULL && second != NULL, "%p and %p", first, second);
  EXPECT(first != second, "malloc(0) gave %p twice", first);
  free(first);
  free(second);
}

CHECK("free(NULL) does nothing") {
  for (int i = 0; i < 1000; ++i) free(opaque_pointer(NULL));
}

CHECK("freed memory is used again") {
  const size_t before = resident_bytes();
  for (size_t round = 0; round < 2000; ++round) {
    enum { blocks = 64 };
    void* block[blocks];
    for (size_t i = 0; i < blocks; ++i) {
      block[i] = malloc(opaque(16384));
      REQUIRE(block[i] != NULL, "null in round %zu", round);
      fill(block[i], 64, i);
    }
    for (size_t i = 0; i < blocks; ++i) free(block[(i * 7 + round) % blocks]);
  }
  const size_t grown = resident_bytes() - before;
  EXPECT(grown < (size_t)32 << 20, "2000 rounds of 1 MiB made the process %zu bytes larger", grown);
}
