// Runs classes of misuse, each in a process of its own, and prints a line for each: the class, a
// tab, the outcome. With an argument, runs that class in this process, for a debugger. It works
// with any allocator, and can judge all of them.
//
// After the misuse the process continues for a while as programs do: an allocator that detects it
// later gets its chance, and damage such as overlapping blocks shows.
#include "classes.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

extern char** environ;

enum { time_limit_seconds = 10 };

extern const Class __start_classes[];
extern const Class __stop_classes[];

// ---- used by the classes ----

void say(char mark) {
  if (write(STDOUT_FILENO, &mark, 1) != 1) _exit(2);
}
void* in_thread(void* (*run)(void*), void* argument) {
  pthread_t thread;
  void* result = NULL;
  if (pthread_create(&thread, NULL, run, argument) != 0 || pthread_join(thread, &result) != 0)
    _exit(2);
  return result;
}
void* put_once(void* p) {
  put(p);
  return NULL;
}

// ---- one of them, in this process ----

static bool something_was_reported(void) {
  struct stat errors;
  return fstat(STDERR_FILENO, &errors) == 0 && S_ISREG(errors.st_mode) && errors.st_size != 0;
}

// Fills many blocks of this size, each with its number, and checks whether they kept it.
static bool blocks_overlap(size_t bytes) {
  enum { most = 1500 };
  static uint32_t* block[most];
  const int count = bytes > 4096 ? 20 : most;
  for (int i = 0; i < count; ++i) {
    block[i] = opaque(malloc(bytes));
    if (block[i] == NULL) _exit(2);
    for (size_t j = 0; j < bytes / sizeof(uint32_t); ++j) block[i][j] = (uint32_t)i;
  }
  bool overlap = false;
  for (int i = 0; i < count; ++i) {
    for (size_t j = 0; j < bytes / sizeof(uint32_t); ++j) overlap |= block[i][j] != (uint32_t)i;
  }
  for (int i = 0; i < count; ++i) free(block[i]);
  return overlap;
}

static int run_here(const Class* class) {
  alarm(time_limit_seconds);
  // Blocks as a program has them: the class is in use, and some blocks were freed.
  char* warm[64];
  for (int i = 0; i < 64; ++i) warm[i] = get(class->bytes);
  for (int i = 0; i < 64; i += 2) put(warm[i]);
  class->run();
  if (something_was_reported()) say('r');
  say('a');
  bool overlap = false;
  for (int round = 0; round < 3; ++round) {
    overlap |= blocks_overlap(class->bytes);
    for (size_t bytes = 16; bytes < 100000; bytes += bytes / 3) put(get(bytes));
  }
  malloc_trim(0);
  overlap |= blocks_overlap(class->bytes);
  if (overlap) say('o');
  if (something_was_reported()) say('R');
  return 0;
}

// ---- all of them ----

// What became of a process, from its output and its exit status.
static const char* outcome_of(const char* said, int status) {
  const bool went_on = strchr(said, 'a') != NULL;
  if (strchr(said, reaches_goal) != NULL) return "succeeds";
  if (WIFSIGNALED(status)) {
    switch (WTERMSIG(status)) {
      case SIGALRM:
        return "hangs";
      case SIGABRT:
      case SIGTRAP:
      case SIGILL:
        return went_on ? "stopped later" : "stopped at once";
      default:
        return went_on ? "crashes later" : "crashes";
    }
  }
  if (WEXITSTATUS(status) == 2 && !went_on) return "not tried";
  if (WEXITSTATUS(status) != 0) return went_on ? "stopped later" : "stopped at once";
  if (strchr(said, 'r') != NULL) return "reported at once, continues";
  if (strchr(said, 'R') != NULL) return "reported later, continues";
  if (strchr(said, 'o') != NULL) return "blocks overlap";
  if (strchr(said, sees_old_contents) != NULL) return "old contents are read";
  if (strchr(said, sees_zeros) != NULL) return "zeros are read";
  if (strchr(said, gets_it_again) != NULL) return "reused at once";
  if (strchr(said, gets_others) != NULL) return "waits";
  if (strchr(said, misses_goal) != NULL) return "fails";
  return "nothing";
}

static const char* run_apart(const Class* class) {
  int ends[2];
  const int errors = memfd_create("errors", MFD_CLOEXEC);
  if (errors < 0 || pipe2(ends, O_CLOEXEC) != 0) return "not tried";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  char* arguments[] = {(char*)"misuse", (char*)class->name, NULL};
  pid_t child = 0;
  const int error = posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  char said[16] = "";
  size_t length = 0;
  for (ssize_t got = 1; got > 0 && length < sizeof said - 1;) {
    got = read(ends[0], said + length, sizeof said - 1 - length);
    if (got > 0) length += (size_t)got;
  }
  close(ends[0]);
  close(errors);
  int status = 0;
  if (error != 0 || waitpid(child, &status, 0) != child) return "not tried";
  return outcome_of(said, status);
}

int main(int argc, char** argv) {
  if (argc > 1) {
    for (const Class* class = __start_classes; class != __stop_classes; ++class) {
      if (strcmp(argv[1], class->name) == 0) return run_here(class);
    }
    dprintf(STDERR_FILENO, "misuse: no class is named \"%s\"; without a name, all are tried\n",
            argv[1]);
    return 2;
  }
  for (const Class* class = __start_classes; class != __stop_classes; ++class)
    dprintf(STDOUT_FILENO, "%s\t%s\n", class->name, run_apart(class));
  return 0;
}
