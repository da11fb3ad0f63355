// Calls before the allocator has started. Every function is called from .preinit_array and from an
// audit library; the very first call is free(NULL); and the dynamic linker allocates thread-local
// storage in the middle of a thread's first steps.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "every_function.h"

static struct {
  bool ran;
  const char* broken;
  unsigned called;
  char* zeroed;
  char* block;
  char* of_libc;
} early;

static const char long_text[] = "made before the first constructor, by a function of libc";

static void call_everything(void) {
  free(opaque_pointer(NULL));
  early.zeroed = calloc(3, 100);
  early.block = malloc(1 << 20);
  early.of_libc = strdup(long_text);
  early.broken = use_every_function(find_in_program, &early.called);
  early.ran = true;
}
__attribute__((section(".preinit_array"),
               used)) static void (*const before_constructors)(void) = call_everything;

CHECK("every function works before the first constructor") {
  need_glibc("the C library runs no .preinit_array");
  REQUIRE(early.ran, ".preinit_array did not run");
  EXPECT(early.broken == NULL, "%s does not work before the first constructor", early.broken);
  EXPECT(early.called >= 20, "only %u functions", early.called);
  REQUIRE(early.zeroed != NULL, "the first calloc is null");
  for (size_t i = 0; i < 300; ++i) EXPECT(early.zeroed[i] == 0, "byte %zu is not zero", i);
  free(early.zeroed);
  REQUIRE(early.block != NULL && early.of_libc != NULL, "an early block is null");
  fill(early.block, 1 << 20, 1);
  EXPECT(strcmp(early.of_libc, long_text) == 0, "strdup made \"%s\"", early.of_libc);
  EXPECT_FILLED(early.block, 1 << 20, 1);
  free(early.block);
  free(early.of_libc);
}

CHECK("every function works in an audit library") {
  need_glibc("only glibc's dynamic linker has audit libraries");
  FILE* const audited = popen("LD_AUDIT='" AUDIT_LIBRARY "' exec /bin/true", "r");
  REQUIRE(audited != NULL, "popen: %s", strerror(errno));
  char text[100] = "";
  const size_t length = fread(text, 1, sizeof text - 1, audited);
  const int status = pclose(audited);
  EXPECT(status == 0, "the audited program ended with wait status %d", status);
  EXPECT(length > 0 && strcmp(text, "ok") == 0, "the audit library said \"%s\"", text);
}

static void* touch_storage(void* storage_of_thread) {
  char* (*const storage)(void) = (char* (*)(void))storage_of_thread;
  char* const block = malloc(100);
  memset(storage(), 1, 20000);
  fill(block, 100, 1);
  EXPECT_FILLED(block, 100, 1);
  free(block);
  return NULL;
}

CHECK("thread-local storage of loaded libraries comes from it") {
  for (int round = 0; round < 20; ++round) {
    void* const library = dlopen(TLS_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != NULL, "dlopen: %s", dlerror());
    void* const function = dlsym(library, "storage_of_thread");
    REQUIRE(function != NULL, "dlsym: %s", dlerror());
    pthread_t thread[4];
    for (size_t i = 0; i < COUNT_OF(thread); ++i) thread[i] = start_thread(touch_storage, function);
    join_threads(thread, COUNT_OF(thread));
    dlclose(library);
  }
}
