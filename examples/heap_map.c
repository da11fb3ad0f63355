/* Compares first, best and worst fit: runs the same seeded series of allocations and frees on a heap
 * of each, and prints the heap as a line of characters, one for each 256 bytes: '#' used, '.' free. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tsmalloc/classic.h>

enum { buffer_bytes = 24 * 1024, bytes_per_character = 256, requests = 400, slots = 24 };

struct map {
  const char* begin;
  char line[buffer_bytes / bytes_per_character + 1];
};

static int draw(const ts_block* block, void* argument) {
  struct map* map = argument;
  const size_t from = (size_t)((const char*)block->address - map->begin) / bytes_per_character;
  const size_t to =
      ((size_t)((const char*)block->address - map->begin) + block->size) / bytes_per_character;
  for (size_t i = from; i <= to && i < sizeof map->line - 1; ++i) {
    if (map->line[i] != '#') map->line[i] = block->state == TS_BLOCK_USED ? '#' : '.';
  }
  return 0;
}

int main(void) {
  static char buffer[buffer_bytes];
  for (int fit = 0; fit < TS_FIT_COUNT; ++fit) {
    const ts_heap_options options = {.strategy = TS_STRATEGY_LOCK,
                                     .fit = (ts_fit)fit,
                                     .source = TS_SOURCE_BUFFER,
                                     .buffer = buffer,
                                     .buffer_size = sizeof buffer};
    ts_heap* heap = ts_heap_create(&options);
    if (heap == NULL) {
      perror("ts_heap_create");
      return 1;
    }
    void* blocks[slots] = {NULL};
    unsigned random = 1;
    int refused = 0;
    for (int i = 0; i < requests; ++i) {
      random = random * 1103515245U + 12345U;
      const unsigned slot = (random >> 16) % slots;
      ts_heap_free(heap, blocks[slot]);
      random = random * 1103515245U + 12345U;
      blocks[slot] = ts_heap_malloc(heap, (random >> 16) % 1500);
      refused += blocks[slot] == NULL;
    }
    struct map map = {.begin = buffer, .line = ""};
    memset(map.line, ' ', sizeof map.line - 1);
    ts_heap_walk(heap, draw, &map);
    ts_heap_measures measures;
    ts_heap_measure(heap, &measures);
    printf("%-5s fit: %2zu free blocks, %5zu bytes free of %zu, %d requests refused\n  %s\n",
           ts_fit_name((ts_fit)fit), measures.free_blocks, measures.free_size,
           measures.segment_size, refused, map.line);
    ts_heap_destroy(heap);
  }
  return 0;
}
