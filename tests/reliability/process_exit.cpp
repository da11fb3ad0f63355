// Process exit: atexit handlers and destructors of statics, in the program and in two libraries,
// find their memory intact, and call every function when everything else has ended.
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "check.h"
#include "late_calls.h"

namespace {

// One in the program, one thread_local of its first thread, one registered with atexit.
const LateCalls in_program{'p'};
thread_local const LateCalls in_thread{'t'};
void at_exit() { call_late('e'); }

// Ends a copy of this process by `end`, or by returning from main if `end` returns. Compares the
// reports of its late callers.
void expect_late_calls(void (*end)(), const char* expected) {
  int ends[2];
  REQUIRE(pipe(ends) == 0, "pipe: %s", strerror(errno));
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    late_calls_report_to(ends[1]);
    return end();
  }
  close(ends[1]);
  char said[64] = "";
  std::size_t length = 0;
  for (ssize_t got = 1; got > 0 && length < sizeof said - 1; length += static_cast<size_t>(got)) {
    got = read(ends[0], said + length, sizeof said - 1 - length);
    if (got < 0) got = 0;
  }
  close(ends[0]);
  const int status = status_of(child);
  EXPECT(status == 0, "the process ended with wait status %d", status);
  for (const char* caller = expected; *caller != '\0'; ++caller)
    EXPECT(std::strchr(said, *caller) != nullptr, "'%c' is not in \"%s\"", *caller, said);
  EXPECT(std::strlen(said) == std::strlen(expected), "\"%s\"", said);
}

void register_all() {
  opaque_pointer(const_cast<LateCalls*>(&in_thread));  // constructs it
  second_late_library();
  REQUIRE(std::atexit(at_exit) == 0, "atexit failed");
}

void end_by_exit() {
  register_all();
  std::exit(0);
}

// In a quick_exit handler, after which no destructor runs.
void end_by_quick_exit() {
  register_all();
  REQUIRE(std::at_quick_exit(at_exit) == 0, "at_quick_exit failed");
  std::quick_exit(0);
}

// The first thread ends before the process, which its last thread ends.
void* end_process(void*) {
  usleep(20'000);
  std::exit(0);
}
void end_by_another_thread() {
  register_all();
  pthread_t thread;
  pthread_create(&thread, nullptr, end_process, nullptr);
  pthread_exit(nullptr);
}

void end_while_others_allocate() {
  register_all();
  for (int i = 0; i < 3; ++i) {
    pthread_t thread;
    pthread_create(
        &thread, nullptr,
        [](void*) -> void* {
          for (std::uint64_t random = 1;;)
            std::free(opaque_pointer(std::malloc(random_size(&random, 200'000))));
        },
        nullptr);
  }
  usleep(5000);
  std::exit(0);
}

CHECK("destructors of three objects and exit handlers call every function") {
  expect_late_calls(end_by_exit, "pte12");
}
CHECK("they do when main returns") { expect_late_calls(register_all, "pte12"); }
CHECK("handlers of quick_exit call every function") { expect_late_calls(end_by_quick_exit, "e"); }
// (glibc forgets the thread_locals of a first thread that ends by itself.)
CHECK("they do when the first thread ended before") {
  expect_late_calls(end_by_another_thread, "pe12");
}
CHECK("they do while other threads allocate") {
  expect_late_calls(end_while_others_allocate, "pte12");
}

}  // namespace
