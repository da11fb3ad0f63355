// Shared by the programs of classes of misuse: each class in a process of its own, and its fate
// (classes.c). A program defines some, and is run without an argument for all of them, or with the
// name of one.
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
  size_t bytes;  // of what it is about
} Class;

// CLASS("double free", small) { ... }
#define CLASS(name, bytes) LISTED_FUNCTION(Class, classes, void, name, bytes)

// The program's findings in the memory, for the test that runs it.
enum {
  sees_zeros = 'z',
  sees_old_contents = 'd',
  gets_it_again = 'u',  // the block that it has just freed
  gets_others = 'w',
  reaches_goal = 'g',  // of a technique of attackers
  misses_goal = 'f',
};
void say(char mark);

// Values that the compiler must not see through.
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

// The result of the function, in a thread that then ends.
void* in_thread(void* (*run)(void*), void* argument);
void* put_once(void* p);
