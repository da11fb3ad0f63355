// Shared by the programs with classes of misuse, which run each class in a process of its own and
// print its outcome (classes.c). A program defines some classes. Without an argument it runs all of
// them, otherwise the one named.
#pragma once

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance/listed.h"

typedef struct Class {
  void (*run)(void);
  const char* name;
  size_t bytes;  // the size of the misused block
} Class;

// CLASS("double free", small) { ... }
#define CLASS(name, bytes) LISTED_FUNCTION(Class, classes, void, name, bytes)

// What the program finds in memory, for the test that runs it.
enum {
  sees_zeros = 'z',
  sees_old_contents = 'd',
  gets_it_again = 'u',  // the block that it has just freed
  gets_others = 'w',
  reaches_goal = 'g',  // for attack techniques
  misses_goal = 'f',
};
void say(char mark);

// Values opaque to the compiler.
static inline void* opaque(void* p) {
  __asm__ volatile("" : "+r"(p)::"memory");
  return p;
}
static inline char* get(size_t bytes) {
  char* const p = opaque(malloc(bytes));
  if (p == NULL) _exit(2);
  memset(p, 'x', bytes);
  return p;
}
static inline void put(void* p) { free(opaque(p)); }
// Where a block was.
static inline char* freed(size_t bytes) {
  char* const p = get(bytes);
  put(p);
  return p;
}

// The function's result, from a thread that then ends.
void* in_thread(void* (*run)(void*), void* argument);
void* put_once(void* p);
