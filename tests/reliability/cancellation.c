// Threads that are cancelled. POSIX (2.9.5.2) lists no function of the malloc family as a
// cancellation point: each completes its work, whatever it writes or reads on the way.
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "every_function.h"

typedef struct Task {
  void (*work)(void);
  bool is_cancelled;
  volatile bool is_done;
} Task;

static void* run(void* argument) {
  Task* const task = argument;
  if (task->is_cancelled) pthread_cancel(pthread_self());  // acts at the next cancellation point
  task->work();
  task->is_done = true;
  pthread_testcancel();
  return NULL;
}

// Whether the work was completed, by a thread that was cancelled afterwards, or not.
static bool is_completed(void (*work)(void), bool is_cancelled) {
  Task task = {work, is_cancelled, false};
  pthread_t thread;
  void* result = NULL;
  if (pthread_create(&thread, NULL, run, &task) != 0 || pthread_join(thread, &result) != 0)
    return false;
  return task.is_done && (result == PTHREAD_CANCELED) == is_cancelled;
}

static const char* broken;
static unsigned called;

static void call_everything(void) { broken = use_every_function(find_in_program, &called); }

CHECK("every function does its work in a thread that is being cancelled") {
  EXPECT(is_completed(call_everything, true), "a function was cut off");
  EXPECT(broken == NULL, "%s does not work in a thread that is being cancelled", broken);
  EXPECT(called >= 20, "only %u functions", called);
}

// ---- reports ----

// Standard error's file, without a buffer.
static FILE* stream;

// How many lines a process prints to standard error while a thread, cancelled or not, does this.
static int lines_of_report(void (*work)(void), bool is_cancelled) {
  stream = tmpfile();
  REQUIRE(stream != NULL, "tmpfile: %s", strerror(errno));
  setvbuf(stream, NULL, _IONBF, 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(fileno(stream), STDERR_FILENO);
    _exit(is_completed(work, is_cancelled) ? 0 : 3);
  }
  const int status = status_of(child);
  // The call returns, or aborts the process.
  EXPECT(WIFSIGNALED(status) || WEXITSTATUS(status) == 0, "it was cut off (status %d)", status);
  int lines = 0;
  int last = '\n';
  rewind(stream);
  for (int c = getc(stream); c != EOF; c = getc(stream)) {
    last = c;
    lines += c == '\n';
  }
  EXPECT(last == '\n', "the last line has no end");
  fclose(stream);
  return lines;
}

static char variable[64] = "no block";

static void free_a_variable(void) { free(opaque_pointer(variable + 16)); }

CHECK("a report of misuse is whole when its thread is being cancelled") {
  const int lines = lines_of_report(free_a_variable, false);
  const int when_cancelled = lines_of_report(free_a_variable, true);
  EXPECT(when_cancelled == lines, "%d lines, and %d of a thread that is being cancelled", lines,
         when_cancelled);
}

// libc has more to say when a cancellation has allocated.
static void expect_whole(void (*work)(void)) {
  const int lines = lines_of_report(work, false);
  const int when_cancelled = lines_of_report(work, true);
  EXPECT(lines > 0 && when_cancelled >= lines,
         "%d lines, and %d of a thread that is being cancelled", lines, when_cancelled);
}

CHECK("malloc_stats is whole when its thread is being cancelled") { expect_whole(malloc_stats); }

static void write_info(void) {
  if (malloc_info(0, stream) != 0) _exit(4);
}

CHECK("malloc_info is whole when its thread is being cancelled") {
  if (!library_is_ours()) skip_check("glibc's malloc_info is a cancellation point, as fprintf is");
  expect_whole(write_info);
}
