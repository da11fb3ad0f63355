// The library opens files for some microseconds, while other threads of the program close and open
// theirs: the program's files stay open. The test catches the library's calls, and does there what
// another thread might do at that moment.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "programs/support/caught_calls.h"

enum { first_free = 3, most_descriptors = 1024, lowest_of_others = 56, tries = 1000 };

static void (*at_read)(int descriptor);  // of the page map
static int reads;

static long serve(const CaughtCall* call) {
  if (call->number == SYS_pread64) {
    ++reads;
    if (at_read != NULL) at_read((int)call->argument[0]);
  }
  return ask_system(call);
}

static void catch_reads(void) {
  const int numbers[] = {SYS_pread64};
  const int error = catch_calls((const void*)(uintptr_t)&malloc, numbers, COUNT_OF(numbers), serve);
  if (error != 0) skip_check("calls by instruction cannot be caught here");
}

// Until the library has checked whether memory was used.
static void use_large_blocks(void) {
  catch_reads();
  reads = 0;
  for (int i = 0; reads == 0 && i < tries; ++i) {
    char* block = malloc(5 << 20);
    if (block != NULL) block[0] = 1;
    free(opaque_pointer(block));
    block = calloc(1, 9 << 20);
    if (block != NULL) block[100] = 1;
    free(opaque_pointer(block));
  }
  if (reads == 0) skip_check("the allocator reads no page map");
}

static int opened = -1;

static void close_all_and_open(int descriptor) {
  (void)descriptor;
  at_read = NULL;
  for (int i = first_free; i < most_descriptors; ++i) close(i);
  opened = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
}

CHECK("a file that is opened while all are closed stays open") {
  at_read = close_all_and_open;
  use_large_blocks();
  EXPECT(opened == first_free, "the lowest descriptor is %d", opened);
  EXPECT(fcntl(opened, F_GETFD) >= 0, "the program's file is closed");
}

static int read_from;

static void note_descriptor(int descriptor) { read_from = descriptor; }

CHECK("the library's descriptors are high ones") {
  at_read = note_descriptor;
  use_large_blocks();
  EXPECT(read_from >= lowest_of_others, "the library's descriptor is %d", read_from);
}

CHECK("a limit of few descriptors is enough") {
  limit_resource(RLIMIT_NOFILE, 16);
  at_read = note_descriptor;
  use_large_blocks();
  EXPECT(read_from < 16 && fcntl(read_from, F_GETFD) < 0, "descriptor %d is left open", read_from);
}
