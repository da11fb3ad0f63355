// Threads that are cancelled. POSIX (2.9.5.2) lists no function of the malloc family as a
// cancellation point: each completes its work, whatever it writes or reads on the way.
#include <errno.h>
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

static char variable[64] = "no block";

static void free_a_variable(void) { free(opaque_pointer(variable + 16)); }

// How many lines a process prints to standard error about its misuse.
static int lines_of_report(bool is_cancelled) {
  FILE* const file = tmpfile();
  REQUIRE(file != NULL, "tmpfile: %s", strerror(errno));
  const pid_t child = fork();
  if (child == 0) {
    dup2(fileno(file), STDERR_FILENO);
    _exit(is_completed(free_a_variable, is_cancelled) ? 0 : 3);
  }
  const int status = status_of(child);
  // The call returns, or aborts the process.
  EXPECT(WIFSIGNALED(status) || WEXITSTATUS(status) == 0, "free was cut off (status %d)", status);
  int lines = 0;
  int last = '\n';
  rewind(file);
  for (int c = getc(file); c != EOF; c = getc(file)) {
    last = c;
    lines += c == '\n';
  }
  EXPECT(last == '\n', "the last line has no end");
  fclose(file);
  return lines;
}

CHECK("a report of misuse is whole when its thread is being cancelled") {
  const int lines = lines_of_report(false);
  const int when_cancelled = lines_of_report(true);
  EXPECT(when_cancelled == lines, "%d lines, and %d of a thread that is being cancelled", lines,
         when_cancelled);
}
