// The frame of every conformance program: named checks, each run in a process of its own, so that a
// crash, a hang or an exhausted heap fails only that check. It is independent of the allocator
// under test, and allocates nothing itself.
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "listed.h"
#include "proc_text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Check {
  void (*run)(void);
  const char* name;
} Check;

// A check of this program, named by a plain statement:
//
//    CHECK("free preserves errno") { ... }
#define CHECK(name) LISTED_FUNCTION(Check, checks, void, name)

// What main does, unless the program has its own. Without arguments, runs all checks and returns 0
// if none failed; with a check's name, runs only that one, in this process (for a debugger). A
// preceding --long makes checks longer where they can be.
int run_checks(int argc, char** argv);

// Prints the expectation and the outcome (a printf format), and continues.
#define EXPECT(condition, ...)                                                     \
  do {                                                                             \
    if (!(condition)) report_failure(__FILE__, __LINE__, #condition, __VA_ARGS__); \
  } while (0)

// The same, but ends the check: nothing after it would make sense.
#define REQUIRE(condition, ...)                                    \
  do {                                                             \
    if (!(condition)) {                                            \
      report_failure(__FILE__, __LINE__, #condition, __VA_ARGS__); \
      end_check();                                                 \
    }                                                              \
  } while (0)

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

void report_failure(const char* file, int line, const char* expected, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
// Whether EXPECT has failed in this check.
bool check_has_failed(void);
// Whether the program was started with --long.
bool check_is_long(void);
// Prints a figure that the check found.
void report_figure(const char* format, ...) __attribute__((format(printf, 1, 2)));
__attribute__((noreturn)) void end_check(void);
// Skips the rest of the check; only for what the allocator does not claim to offer.
__attribute__((noreturn)) void skip_check(const char* reason);

// Skips the rest of the check where the C library is not glibc, for the given reason: other C
// libraries do not do what it tests, whatever the allocator.
void need_glibc(const char* reason);

// A program linked with this C library that exits with status 0. LD_PRELOAD affects it.
#ifndef TRUE_PROGRAM
#define TRUE_PROGRAM "/bin/true"
#endif

// The function that the program would call by this name, or null (no allocator must export
// extensions).
void* find_function(const char* name);

// The file name, without a version, of the library that contains malloc: a promise beyond the
// standards is a promise of one library.
const char* tested_library(void);
// Whether it is one of this project's libraries, and whether it is the engine, or the hardened heap.
bool library_is_ours(void);
bool library_is_engine(void);
bool library_is_hardened(void);
// Whether the function that the program would call by this name is the tested library's, and not
// libc's.
bool library_has(const char* function);
// What an environment variable says, 1 or 0; if it is unset, whether there is such a function.
bool is_expected(const char* variable, const char* function);

// Starts a thread; joins it and returns its result. The check ends if no thread can be created.
pthread_t start_thread(void* (*body)(void*), void* argument);
pthread_t start_thread_on_stack(size_t bytes, void* (*body)(void*), void* argument);
void* run_thread(void* (*body)(void*), void* argument);
// Starts this many at once, with the arguments 1, 2, ...
void start_threads(pthread_t* threads, size_t count, void* (*body)(void*));
void join_threads(const pthread_t* threads, size_t count);

// The wait status of a child from fork() or posix_spawn(), after it has ended.
int status_of(pid_t child);

// A pattern that differs from block to block: fill writes it, first_damage returns the offset of
// the first byte that differs, or `bytes`.
void fill(void* block, size_t bytes, uint64_t seed);
size_t first_damage(const void* block, size_t bytes, uint64_t seed);
// A block that fill() wrote still has that pattern.
#define EXPECT_FILLED(block, bytes, seed) expect_filled(__FILE__, __LINE__, block, bytes, seed)
void expect_filled(const char* file, int line, const void* block, size_t bytes, uint64_t seed);
// The offset of the first byte that is not zero, or `bytes`.
size_t first_nonzero(const void* block, size_t bytes);
// A block from malloc, or the end of the check: filled with that pattern, or with ones.
void* filled(size_t bytes, uint64_t seed);
void* written(size_t bytes);

// Pseudo-random numbers (splitmix64), the same on every run.
uint64_t next_random(uint64_t* state);
// A size up to `limit`, all orders of magnitude equally likely.
size_t random_size(uint64_t* state, size_t limit);

// The alignment that any object of this size may need: the largest power of two that is not larger,
// at most 16 (C17 7.22.3). That glibc promises 16 for smaller ones too is one check of its own, in
// basics.c.
size_t natural_alignment(size_t bytes);

// A value opaque to the compiler, which neither folds it nor warns about it.
size_t opaque(size_t value);
void* opaque_pointer(void* pointer);

// How many threads of this process have that name; `last`, if not null, receives the number of one.
// (Opening a directory allocates.)
unsigned threads_named(const char* name, long* last);
// Blocks of this size, until `most` are taken or one is refused, with ENOMEM; returns how many. To
// be given back with their contents checked.
size_t take_blocks(char** blocks, size_t most, size_t bytes);
void give_back_blocks(char* const* blocks, size_t count, size_t bytes);
// Sets the soft limit of an RLIMIT_....
void limit_resource(int resource, size_t value);

size_t mapping_count(void);

// Address space and resident memory of this process.
size_t address_space_bytes(void);
size_t data_bytes(void);  // private writable memory, resident or not, which RLIMIT_DATA limits
size_t resident_bytes(void);
// The part that was written to, without files: exact, while resident_bytes() lags behind.
size_t anonymous_bytes(void);

#ifdef __cplusplus
}
#endif
