// Stresses the work before and during the first malloc: loading the library, its relocations, its
// first system calls and pages. This program runs itself again and again, with the argument `once`;
// that process makes one malloc and one free, and ends. The peak is that of such a process, since
// the parent does no more. Leaves out everything that a program does afterwards. An operation is a
// program; the block's two ends are written and read.
#include <spawn.h>
#include <sys/wait.h>

#include "workload.h"

namespace {

using namespace ts::bench;

bool run_once(char* program) {
  char once[] = "once";
  char* const arguments[] = {program, once, nullptr};
  pid_t child = 0;
  int status = 0;
  return ::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) == 0 &&
         ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Does not use the class Arguments: everything that it pulls in would be loaded by every program
// that is started.
std::size_t programs_asked_for(int argc, char** argv) {
  constexpr std::size_t otherwise = 1000;
  if (argc == 1) return otherwise;
  const std::size_t programs =
      argc == 3 && std::strcmp(argv[1], "--programs") == 0 ? std::strtoul(argv[2], nullptr, 10) : 0;
  if (programs != 0) return programs;
  std::fprintf(stderr, "usage: %s [--programs N]\n", argv[0]);
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "once") == 0) {
    give(take(100, 1));
    return 0;
  }
  const std::size_t programs = programs_asked_for(argc, argv);
  const Stopwatch watch;
  for (std::size_t i = 0; i < programs; ++i) {
    if (!run_once(argv[0])) fail("the program did not run, or crashed");
  }
  report(programs, watch.seconds());
  return 0;
}
