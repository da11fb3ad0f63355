// Libraries loaded at run time: they get memory from the same allocator, whatever scope they are
// loaded into, and a C++ module in a C program can catch std::bad_alloc. While a library's
// constructor runs, its thread holds the dynamic linker's lock, and may wait for a thread that
// allocates.
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

static void* open_plugin(const char* path, int flags) {
  void* plugin = dlopen(path, RTLD_NOW | flags);
  REQUIRE(plugin != NULL, "dlopen: %s", dlerror());
  return plugin;
}

static void* symbol(void* plugin, const char* name) {
  void* address = dlsym(plugin, name);
  REQUIRE(address != NULL, "dlsym: %s", dlerror());
  return address;
}

CHECK("blocks cross the borders of loaded libraries") {
  static const int scopes[] = {RTLD_LOCAL, RTLD_GLOBAL};
  for (size_t i = 0; i < COUNT_OF(scopes); ++i) {
    for (int round = 0; round < 20; ++round) {
      void* plugin = open_plugin(PLUGIN_C, scopes[i]);
      void* (*const plugin_allocate)(size_t) = (void* (*)(size_t))symbol(plugin, "plugin_allocate");
      void (*const plugin_release)(void*) = (void (*)(void*))symbol(plugin, "plugin_release");
      char* theirs = plugin_allocate(1000);
      REQUIRE(theirs != NULL, "null");
      fill(theirs, 1000, 1);
      char* ours = malloc(1000);
      plugin_release(ours);
      dlclose(plugin);
      EXPECT_FILLED(theirs, 1000, 1);
      free(realloc(theirs, 5000));
    }
  }
}

CHECK("C++ modules of C programs catch bad_alloc") {
  need_glibc("there is no C++ runtime of this C library");
  void* plugin = open_plugin(PLUGIN_CXX, RTLD_LOCAL);
  int (*const catches_bad_alloc)(size_t) = (int (*)(size_t))symbol(plugin, "catches_bad_alloc");
  EXPECT(catches_bad_alloc(opaque(PTRDIFF_MAX / 2)) == 1,
         "operator new of half the address range threw nothing");
  int (*const builds_and_sorts)(int) = (int (*)(int))symbol(plugin, "builds_and_sorts");
  EXPECT(builds_and_sorts(20000) == 1, "the module's container is wrong");
  dlclose(plugin);
}

// ---- a thread that a constructor waits for ----

// Found by the plugin.
extern void (*work_of_plugin)(void);
void (*work_of_plugin)(void);

// A check that hangs ends soon.
static void do_in_constructor(void (*work)(void)) {
  alarm(60);
  work_of_plugin = work;
  dlclose(open_plugin(PLUGIN_THREAD, RTLD_LOCAL));
}

// 80 MB and more, to reach limits that options set (CMakeLists.txt).
static void allocate_much(void) {
  enum { small_blocks = 20000, large_blocks = 40, large_bytes = 2 << 20 };
  static char* block[small_blocks];
  for (size_t i = 0; i < small_blocks; ++i) {
    block[i] = malloc(64 + i % 500);
    REQUIRE(block[i] != NULL, "null at block %zu", i);
  }
  for (size_t i = 0; i < small_blocks; ++i) free(block[i]);
  for (size_t i = 0; i < large_blocks; ++i) block[i] = written(large_bytes);
  for (size_t i = 0; i < large_blocks; ++i) free(block[i]);
}

CHECK("a thread that a constructor waits for allocates") { do_in_constructor(allocate_much); }

static void free_foreign_block(void) {
  char* const page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  free(opaque_pointer(page + 64));
  munmap(page, 4096);
}

CHECK("a thread that a constructor waits for frees a foreign block") {
  // (The teaching heaps use a mapping of its own for it.)
  if (!library_is_engine()) skip_check("a foreign pointer ends the process");
  FILE* const file = tmpfile();
  REQUIRE(file != NULL, "tmpfile: %s", strerror(errno));
  const int kept = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  do_in_constructor(free_foreign_block);
  dup2(kept, STDERR_FILENO);
  char text[4096] = "";
  rewind(file);
  const size_t length = fread(text, 1, sizeof text - 1, file);
  EXPECT(strstr(text, "by another allocator") != NULL, "%zu bytes: %s", length, text);
  // The program's calls, and the plugin's. (Under musl, no call is found there.)
  const bool has_calls = strstr(text, "plugins(") != NULL && strstr(text, "plugin_thread") != NULL;
  EXPECT(has_calls || PLUGIN_CXX[0] == '\0', "%s", text);
  fclose(file);
}
