// realloc of growing blocks. A list that grows by one element at a time is copied a few times, not
// at each step; a large buffer that doubles does not need twice its memory on the way. Copies are
// counted as a program sees them.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

// ---- by 8 bytes ----

enum { elements = 4 << 20 };
enum { last_bytes = elements * sizeof(size_t) };
// The copies if each growth by an eighth made one.
enum { most_moved_bytes = 8 * last_bytes };

typedef struct Growth {
  size_t moves;
  size_t moved_bytes;  // that were in use when the block got another address
} Growth;

// A list of numbers, reallocated for each one.
static Growth grow_by_one(void) {
  Growth growth = {0};
  size_t* list = NULL;
  for (size_t length = 1; length <= elements; ++length) {
    const uintptr_t before = (uintptr_t)list;
    list = realloc(list, length * sizeof *list);
    REQUIRE(list != NULL, "realloc to %zu is null", length * sizeof *list);
    if ((uintptr_t)list != before && before != 0) {
      ++growth.moves;
      growth.moved_bytes += (length - 1) * sizeof *list;
      REQUIRE(growth.moved_bytes <= most_moved_bytes,
              "%zu moves of %zu bytes to reach a length of %zu", growth.moves, growth.moved_bytes,
              length);
      const size_t middle = (length - 1) / 2;
      REQUIRE(list[0] == 0 && list[middle] == middle && list[length - 2] == length - 2,
              "the contents changed at a length of %zu", length);
    }
    list[length - 1] = length - 1;
  }
  for (size_t i = 0; i < elements; ++i) REQUIRE(list[i] == i, "element %zu is %zu", i, list[i]);
  free(list);
  return growth;
}

CHECK("a list grows by an element at a time") {
  const Growth growth = grow_by_one();
  report_figure("%zu moves, of %.2f times the final size", growth.moves,
                (double)growth.moved_bytes / (double)last_bytes);
  EXPECT(growth.moves <= 1000, "%zu moves", growth.moves);
}

// Many lists that grow in turn, so that none can stay where it is for long.
CHECK("many lists grow in turn") {
  enum { lists = 64, steps = 8000 };
  static size_t* list[lists];
  size_t moves = 0;
  size_t moved_bytes = 0;
  for (size_t length = 1; length <= steps; ++length) {
    for (size_t i = 0; i < lists; ++i) {
      const uintptr_t before = (uintptr_t)list[i];
      list[i] = realloc(list[i], length * sizeof(size_t));
      REQUIRE(list[i] != NULL, "null");
      if ((uintptr_t)list[i] != before && before != 0) {
        ++moves;
        moved_bytes += (length - 1) * sizeof(size_t);
      }
      list[i][length - 1] = length ^ i;
    }
  }
  for (size_t i = 0; i < lists; ++i) {
    for (size_t at = 0; at < steps; ++at)
      REQUIRE(list[i][at] == ((at + 1) ^ i), "list %zu: element %zu changed", i, at);
    free(list[i]);
  }
  const size_t bytes = (size_t)lists * steps * sizeof(size_t);
  report_figure("%.1f moves a list, of %.2f times the final size", (double)moves / lists,
                (double)moved_bytes / (double)bytes);
  // At best an allocator can give each block its class's size, and a fraction more each time.
  EXPECT(!library_is_engine() || moved_bytes <= 16 * bytes, "%zu bytes were moved to reach %zu",
         moved_bytes, bytes);
}

// ---- mappings ----

// A process may have about 65,000 mappings, and its threads and files need some.
CHECK("buffers that grow and go leave few mappings") {
  enum { buffers = 64, steps = 8000, most = 4000 };
  typedef struct Buffer {
    char* bytes;
    size_t length;
  } Buffer;
  static Buffer all[buffers];
  unsigned state = 1;
  size_t moves = 0;
  size_t peak = 0;
  for (size_t step = 1; step <= steps; ++step) {
    state = state * 1664525U + 1013904223U;
    Buffer* const buffer = &all[state >> 26];
    if (buffer->length > (size_t)64 << 20 || (state >> 8) % 16 == 0) {
      free(buffer->bytes);
      *buffer = (Buffer){NULL, 0};
    }
    const size_t before = buffer->length;
    const size_t length = before == 0 ? 200000 + (state >> 12) : before + before / 2;
    char* const bytes = realloc(buffer->bytes, length);
    REQUIRE(bytes != NULL, "realloc to %zu is null", length);
    REQUIRE(before == 0 || (bytes[0] == (char)length && bytes[before - 1] == 2),
            "the contents changed at a length of %zu", length);
    moves += before != 0 && bytes != buffer->bytes;
    *buffer = (Buffer){bytes, length};
    bytes[0] = (char)(length + length / 2);  // the next length
    bytes[length - 1] = 2;
    if (step % 1000 == 0) {
      const size_t now = mapping_count();
      peak = now > peak ? now : peak;
    }
  }
  for (size_t i = 0; i < buffers; ++i) free(all[i].bytes);
  report_figure("%zu mappings at the most, in %zu moves of 64 buffers", peak, moves);
  EXPECT(peak <= most, "%zu mappings in %zu moves", peak, moves);
}

// ---- doubling ----

// A field of /proc/self/status, in bytes.
static size_t status_bytes(const char* name) {
  return (size_t)figure_of("/proc/self/status", name) << 10;
}

// Fills four buffers, grows them in turn by half, and frees them, this many times.
static void grow_and_go(unsigned rounds) {
  enum { buffers = 4, growths = 6, first_bytes = 300000 };
  static char* all[buffers];
  for (unsigned round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < buffers; ++i) all[i] = written(first_bytes);
    size_t bytes = first_bytes;
    for (unsigned growth = 0; growth < growths; ++growth) {
      const size_t more = bytes + bytes / 2;
      for (size_t i = 0; i < buffers; ++i) {
        all[i] = realloc(all[i], more);
        REQUIRE(all[i] != NULL, "realloc to %zu is null", more);
        REQUIRE(all[i][0] == 1 && all[i][bytes - 1] == 1, "the contents changed at %zu", bytes);
        memset(all[i] + bytes, 1, more - bytes);
      }
      bytes = more;
    }
    for (size_t i = 0; i < buffers; ++i) free(all[i]);
  }
}

static void addresses_stay_few(void) {
  const unsigned rounds = check_is_long() ? 2000 : 150;
  grow_and_go(rounds);
  const size_t before = status_bytes("VmSize:");
  grow_and_go(rounds);
  const size_t after = status_bytes("VmSize:");
  report_figure("%zu MB of addresses after %u rounds, %zu MB after %u", before >> 20, rounds,
                after >> 20, 2 * rounds);
  // Less than one first place of a buffer per round.
  const size_t more = check_is_long() ? (size_t)64 << 20 : (size_t)32 << 20;
  EXPECT(after <= before + more, "%zu MB, and then %zu MB", before >> 20, after >> 20);
}

CHECK("buffers that grow and go take few addresses") { addresses_stay_few(); }

// The old place of a move could not be returned.
CHECK("the same in a process whose memory is locked") {
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) skip_check("memory cannot be locked here");
  addresses_stay_few();
}

// Memory that a program locked and unlocked no longer counts towards its limit on locked memory.
CHECK("locked buffers grow, are unlocked, and go") {
  enum { rounds = 20, buffers = 2, growths = 5 };
  const size_t part = (size_t)512 << 10;
  size_t first = 0;
  size_t locked = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    char* all[buffers] = {0};
    for (unsigned parts = 1; parts <= growths; ++parts) {
      for (size_t i = 0; i < buffers; ++i) {
        all[i] = realloc(all[i], parts * part);
        REQUIRE(all[i] != NULL, "realloc to %zu is null", parts * part);
        REQUIRE(parts == 1 || all[i][(parts - 1) * part - 1] == 1, "the contents changed");
        memset(all[i] + (parts - 1) * part, 1, part);
        if (mlock(all[i], parts * part) != 0) skip_check("memory cannot be locked here");
      }
    }
    for (size_t i = 0; i < buffers; ++i) {
      munlock(all[i], growths * part);
      free(all[i]);
    }
    locked = status_bytes("VmLck:");
    if (round == 0) first = locked;
  }
  report_figure("%zu kB locked after one round, %zu kB after %d", first >> 10, locked >> 10,
                rounds);
  EXPECT(locked <= first + 4 * part, "%zu kB, and then %zu kB", first >> 10, locked >> 10);
}

static size_t peak_bytes(void) { return status_bytes("VmHWM:"); }

static void doubling(void) {
  const size_t megabyte = (size_t)1 << 20;
  size_t last = check_is_long() ? 1024 * megabyte : 256 * megabyte;
  // Three times as much must be available, for allocators that copy.
  while (last > ((size_t)figure_of("/proc/meminfo", "MemAvailable:") << 10) / 3) last /= 2;
  const size_t before = peak_bytes();
  size_t bytes = megabyte;
  char* buffer = written(bytes);
  while (bytes < last) {
    buffer = realloc(buffer, 2 * bytes);
    REQUIRE(buffer != NULL, "realloc to %zu is null", 2 * bytes);
    for (size_t at = 0; at < bytes; at += 4096)
      REQUIRE(buffer[at] == 1, "byte %zu of %zu changed", at, bytes);
    memset(buffer + bytes, 1, bytes);
    bytes *= 2;
  }
  const double peak = (double)(peak_bytes() - before) / (double)bytes;
  free(buffer);
  report_figure("%zu MB, reached by doubling, need %.2f times that at the most", bytes >> 20, peak);
  EXPECT(peak < 2, "the peak is %.2f times the final size", peak);
  EXPECT(peak < 1.25 || !library_is_engine(), "the peak is %.2f times the final size", peak);
}

CHECK("a large buffer doubles without twice the memory") { doubling(); }
