// tsmalloc/arena.h: arenas and scopes, in a program whose parts know nothing of them. In libraries
// without arenas, and without any library, each function reports that. arenas_cxx.cpp tests the
// same for C++; the oracle of fuzz/arena_operations.cpp nests scopes, frees blocks in other threads
// and ends threads in scopes.
//
// ARENAS_EXPECTED tells whether there are any: 1 or 0. If it is unset, the dynamic linker decides.
#include <tsmalloc/arena.h>
// First, to show that the header needs no other.
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static bool are_expected(void) {
  const char* const expected = getenv("ARENAS_EXPECTED");
  if (expected != NULL) return strcmp(expected, "1") == 0;
  return find_function("ts_scope_enter") != NULL;
}

static ts_arena* new_arena(void) {
  if (!are_expected()) skip_check("no arenas");
  ts_arena* const arena = ts_arena_create();
  REQUIRE(arena != NULL, "errno %d", errno);
  return arena;
}

static struct ts_arena_usage usage_of(ts_arena* arena) {
  struct ts_arena_usage usage = {0, 0, 0};
  const int error = ts_arena_stats(arena, &usage);
  EXPECT(error == 0, "ts_arena_stats() is %d", error);
  return usage;
}

// ---- a parser that knows malloc and free ----

// A value in parentheses, such as (a (bc d) e): atoms and lists. Each node is a block, each atom's
// text another, and the texts of all atoms are also collected in a buffer that grows.
typedef struct Node {
  struct Node* next;
  struct Node* first;
  char* text;
} Node;

typedef struct Parser {
  const char* at;
  char* all;
  size_t length;
} Parser;

static Node* parse_values(Parser* parser) {
  Node* first = NULL;
  Node** end = &first;
  while (*parser->at != '\0' && *parser->at != ')') {
    if (*parser->at == ' ') {
      ++parser->at;
      continue;
    }
    Node* const node = calloc(1, sizeof *node);
    if (node == NULL) break;
    if (*parser->at == '(') {
      ++parser->at;
      node->first = parse_values(parser);
      if (*parser->at == ')') ++parser->at;
    } else {
      const size_t length = strcspn(parser->at, " ()");
      node->text = strndup(parser->at, length);
      char* const all = realloc(parser->all, parser->length + length + 1);
      if (all != NULL) {
        memcpy(all + parser->length, parser->at, length);
        parser->all = all;
        parser->length += length;
        all[parser->length] = '\0';
      }
      parser->at += length;
    }
    *end = node;
    end = &node->next;
  }
  return first;
}

static size_t count(const Node* node) {
  size_t nodes = 0;
  for (; node != NULL; node = node->next) nodes += 1 + count(node->first);
  return nodes;
}

static void free_values(Node* node) {
  while (node != NULL) {
    Node* const next = node->next;
    free_values(node->first);
    free(node->text);
    free(node);
    node = next;
  }
}

enum { values = 30000 };

static char* long_text(void) {
  char* const text = malloc(values * (size_t)12 + 1);
  REQUIRE(text != NULL, "null");
  char* at = text;
  for (int i = 0; i < values; ++i) at += sprintf(at, "(a%d b) ", i);
  return text;
}

CHECK("a parser that knows nothing of it allocates in an arena") {
  ts_arena* const arena = new_arena();
  char* const text = long_text();
  for (int round = 0; round < 5; ++round) {
    Parser parser = {text, NULL, 0};
    EXPECT(ts_scope_enter(arena) == 0, "round %d", round);
    Node* const parsed = parse_values(&parser);
    EXPECT(ts_scope_leave() == 0, "round %d", round);
    EXPECT(count(parsed) == 3 * (size_t)values, "%zu nodes", count(parsed));
    const struct ts_arena_usage usage = usage_of(arena);
    EXPECT(usage.used_bytes >= count(parsed) * sizeof(Node) + parser.length, "%zu bytes are used",
           usage.used_bytes);
    EXPECT(usage.slab_bytes + usage.large_bytes >= usage.used_bytes, "%zu + %zu < %zu",
           usage.slab_bytes, usage.large_bytes, usage.used_bytes);
    if (round % 2 == 0) {  // by hand, outside of the scope
      free_values(parsed);
      free(parser.all);
      EXPECT(usage_of(arena).used_bytes == 0, "%zu bytes are used", usage_of(arena).used_bytes);
    }
    EXPECT(ts_arena_reset(arena) == 0, "round %d", round);
    EXPECT(usage_of(arena).slab_bytes + usage_of(arena).large_bytes == 0, "a reset left memory");
  }
  free(text);
  EXPECT(ts_arena_destroy(arena) == 0, "busy");
}

// ---- the rules ----

CHECK("an arena's blocks are blocks of malloc") {
  ts_arena* const arena = new_arena();
  static const size_t sizes[] = {0, 1, 100, 4000, 32768, 32769, 100000, 5000000};
  for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
    errno = 7;
    char* block = ts_arena_malloc(arena, opaque(sizes[i]));
    REQUIRE(block != NULL, "%zu bytes: errno %d", sizes[i], errno);
    EXPECT(errno == 7, "errno is %d", errno);
    EXPECT(ts_usable_size(block) >= sizes[i], "%zu", ts_usable_size(block));
    fill(block, sizes[i], i);
    block = realloc(block, sizes[i] + 10000);
    REQUIRE(block != NULL, "null");
    EXPECT_FILLED(block, sizes[i], i);
    free(block);
    for (size_t alignment = 16; alignment <= 1 << 20; alignment *= 4) {
      block = ts_arena_aligned_alloc(arena, alignment, opaque(sizes[i]));
      REQUIRE(block != NULL, "null");
      EXPECT((uintptr_t)block % alignment == 0, "%p is not aligned to %zu", (void*)block,
             alignment);
      if (alignment % 64 == 0) free(block);
    }
  }
  EXPECT(ts_arena_aligned_alloc(arena, 24, 100) == NULL && errno == EINVAL, "errno %d", errno);
  EXPECT(ts_arena_malloc(arena, opaque(PTRDIFF_MAX)) == NULL && errno == ENOMEM, "%d", errno);
  EXPECT(ts_arena_destroy(arena) == 0, "busy");
}

CHECK("mistakes are errors that change nothing") {
  ts_arena* const arena = new_arena();
  errno = 7;
  EXPECT(ts_scope_leave() == EINVAL, "left no scope");
  EXPECT(ts_scope_enter((ts_arena*)opaque_pointer((void*)1)) == EINVAL, "entered no arena");
  EXPECT(ts_arena_destroy(NULL) == EINVAL, "destroyed no arena");
  EXPECT(ts_scope_enter(arena) == 0, "refused");
  EXPECT(ts_arena_destroy(arena) == EBUSY, "destroyed in its scope");
  EXPECT(ts_arena_reset(arena) == EBUSY, "reset in its scope");
  EXPECT(ts_scope_leave() == 0 && ts_scope_leave() == EINVAL, "left twice");
  EXPECT(ts_arena_destroy(arena) == 0, "busy");
  EXPECT(ts_arena_destroy(arena) == EINVAL, "destroyed twice");
  EXPECT(ts_arena_reset(arena) == EINVAL, "reset after its end");
  EXPECT(ts_scope_enter(arena) == EINVAL, "entered after its end");
  EXPECT(errno == 7, "errno is %d", errno);
  EXPECT(ts_arena_malloc(arena, 1) == NULL && errno == EINVAL, "errno %d", errno);
  EXPECT(ts_arena_malloc(NULL, 1) == NULL && errno == EINVAL, "errno %d", errno);
}

// ---- forks ----

// A thread that is in the scope of this arena when its process forks.
typedef struct Other {
  ts_arena* arena;
  pthread_barrier_t turn;
  void* blocks[3000];
} Other;

static void* stay_in_scope(void* argument) {
  Other* const other = argument;
  ts_scope_enter(other->arena);
  for (size_t i = 0; i < COUNT_OF(other->blocks); ++i) other->blocks[i] = malloc(100);
  pthread_barrier_wait(&other->turn);
  pthread_barrier_wait(&other->turn);
  for (size_t i = 0; i < COUNT_OF(other->blocks); ++i) free(other->blocks[i]);
  ts_scope_leave();
  return NULL;
}

// The other thread was not changing its arena, so the child has that, too.
static bool works_in_child(ts_arena* arena, ts_arena* idle, Other* other) {
  char* const more = malloc(1000);
  const bool is_inside = usage_of(arena).used_bytes >= 1000;
  bool works = more != NULL && is_inside && ts_scope_leave() == 0 && ts_arena_destroy(arena) == 0 &&
               ts_arena_destroy(idle) == 0;
  works &= ts_scope_enter(other->arena) == 0;
  for (size_t i = 0; i < COUNT_OF(other->blocks); i += 2) free(other->blocks[i]);
  for (int i = 0; i < 1000; ++i) works &= malloc(opaque(100)) != NULL;
  return works && ts_scope_leave() == 0 && ts_arena_destroy(other->arena) == 0;
}

CHECK("a fork keeps arenas and scopes, and frees those of threads that it lacks") {
  static Other other;
  other.arena = new_arena();
  ts_arena* const arena = new_arena();
  ts_arena* const idle = new_arena();
  pthread_barrier_init(&other.turn, NULL, 2);
  const pthread_t thread = start_thread(stay_in_scope, &other);
  pthread_barrier_wait(&other.turn);
  char* const block = ts_arena_malloc(idle, 1000);
  ts_scope_enter(arena);
  char* const inside = malloc(1000);
  REQUIRE(block != NULL && inside != NULL, "null");
  const pid_t child = fork();
  if (child == 0) {
    free(block);
    free(inside);
    _exit(works_in_child(arena, idle, &other) ? 0 : 1);
  }
  EXPECT(status_of(child) == 0, "the child's arenas");
  EXPECT(ts_scope_leave() == 0, "the parent's scope");
  EXPECT(usage_of(idle).used_bytes >= 1000, "%zu bytes", usage_of(idle).used_bytes);
  EXPECT(ts_arena_destroy(arena) == 0 && ts_arena_destroy(idle) == 0, "busy");
  pthread_barrier_wait(&other.turn);
  pthread_join(thread, NULL);
  EXPECT(usage_of(other.arena).used_bytes == 0, "%zu bytes", usage_of(other.arena).used_bytes);
  EXPECT(ts_arena_destroy(other.arena) == 0, "busy");
}

// ---- many ----

CHECK("many arenas come and go") {
  static ts_arena* arenas[3000];
  arenas[0] = new_arena();
  for (size_t i = 1; i < COUNT_OF(arenas); ++i) arenas[i] = new_arena();
  for (size_t i = 0; i < COUNT_OF(arenas); ++i) {
    char* const block = ts_arena_malloc(arenas[i], 100 + i);
    REQUIRE(block != NULL, "null");
    fill(block, 100 + i, i);
  }
  const struct mallinfo2 before = mallinfo2();
  for (size_t i = 0; i < COUNT_OF(arenas); ++i)
    EXPECT(ts_arena_destroy(arenas[i]) == 0, "arena %zu", i);
  const struct mallinfo2 after = mallinfo2();
  EXPECT(after.uordblks < before.uordblks - COUNT_OF(arenas) * 100, "%zu bytes in use, then %zu",
         before.uordblks, after.uordblks);
  for (int i = 0; i < 100000; ++i) {
    ts_arena* const arena = ts_arena_create();
    REQUIRE(arena != NULL && ts_arena_malloc(arena, 50) != NULL, "round %d", i);
    EXPECT(ts_arena_destroy(arena) == 0, "round %d", i);
  }
}

// ---- without arenas ----

CHECK("without arenas each function says so") {
  if (are_expected()) skip_check("there are arenas");
  struct ts_arena_usage usage;
  errno = 0;
  EXPECT(ts_arena_create() == NULL && errno == ENOTSUP, "errno %d", errno);
  errno = 0;
  EXPECT(ts_arena_malloc(NULL, 10) == NULL && errno == ENOTSUP, "errno %d", errno);
  errno = 0;
  EXPECT(ts_arena_aligned_alloc(NULL, 64, 10) == NULL && errno == ENOTSUP, "errno %d", errno);
  EXPECT(ts_arena_reset(NULL) == ENOTSUP && ts_arena_destroy(NULL) == ENOTSUP, "another error");
  EXPECT(ts_arena_stats(NULL, &usage) == ENOTSUP, "another error");
  EXPECT(ts_scope_enter(NULL) == ENOTSUP && ts_scope_leave() == ENOTSUP, "another error");
}
