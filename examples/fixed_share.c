/* Lecture D's "solution 1": the heap is divided among the threads, so that no thread needs a lock.
 * What happens when a thread's share is used up, and when a thread frees blocks of another thread?
 *
 * Two threads get 64 KiB each of one buffer. The producer allocates until its share is used up; then
 * the consumer frees the producer's blocks. The freed memory now belongs to the consumer, and the
 * producer still has none. The program prints the figures, and exits with an error if the heap does
 * not behave as described in classic.h. */
#define _POSIX_C_SOURCE 200809L /* pthread_barrier_t under -std=c11 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <tsmalloc/classic.h>

enum { share_bytes = 64 * 1024, block_bytes = 1000, max_blocks = share_bytes / block_bytes };

static ts_heap* heap;
static void* blocks[2 * max_blocks];
static int count;
static pthread_barrier_t step;

static void check(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "fixed_share: expected that %s\n", what);
  exit(1);
}

static int allocate_until_the_end(void) {
  int allocated = 0;
  errno = 0;
  for (void* block; (block = ts_heap_malloc(heap, block_bytes)) != NULL; ++allocated)
    blocks[count++] = block;
  check(errno == ENOMEM, "a share that is used up reports ENOMEM");
  return allocated;
}

static void* producer(void* unused) {
  const int first = allocate_until_the_end();
  printf("producer: %d blocks of %d bytes fit into its share of %d bytes, then ENOMEM\n", first,
         block_bytes, share_bytes);
  check(first >= max_blocks - 3 && first <= max_blocks, "a share holds what it should");
  pthread_barrier_wait(&step); /* the consumer frees everything */
  pthread_barrier_wait(&step);
  const int again = allocate_until_the_end();
  printf("producer: %d blocks after the consumer freed all %d: they have changed hands\n", again,
         first);
  check(again == 0, "what another thread freed does not come back");
  pthread_barrier_wait(&step);
  pthread_barrier_wait(&step); /* the consumer allocates; this thread's heap must still be alive */
  return unused;
}

static void* consumer(void* unused) {
  pthread_barrier_wait(&step);
  for (int i = 0; i < count; ++i) ts_heap_free(heap, blocks[i]);
  const int freed = count;
  count = 0;
  pthread_barrier_wait(&step);
  pthread_barrier_wait(&step);
  const int got = allocate_until_the_end();
  printf("consumer: %d blocks, its own share and the %d that it freed\n", got, freed);
  check(got > max_blocks + max_blocks / 2, "a thread that frees takes the memory over");
  pthread_barrier_wait(&step);
  return unused;
}

int main(void) {
  static char buffer[4 * share_bytes];
  const ts_heap_options options = {.strategy = TS_STRATEGY_NOLOCK,
                                   .fit = TS_FIT_BEST,
                                   .source = TS_SOURCE_BUFFER,
                                   .buffer = buffer,
                                   .buffer_size = sizeof buffer,
                                   .thread_share = share_bytes};
  heap = ts_heap_create(&options);
  if (heap == NULL) {
    perror("ts_heap_create");
    return 1;
  }
  pthread_barrier_init(&step, NULL, 2);
  pthread_t threads[2];
  pthread_create(&threads[0], NULL, producer, NULL);
  pthread_create(&threads[1], NULL, consumer, NULL);
  pthread_join(threads[0], NULL);
  pthread_join(threads[1], NULL);
  ts_heap_destroy(heap);
  return 0;
}
