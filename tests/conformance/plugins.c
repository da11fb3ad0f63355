// Libraries that are loaded while the program runs: their memory is the same allocator's, whatever
// the scope they are loaded into, and a C++ module in a C program can catch std::bad_alloc.
#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

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

static void blocks_cross_libraries(void) {
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
      EXPECT(first_damage(theirs, 1000, 1) == 1000, "a block died with its library");
      free(realloc(theirs, 5000));
    }
  }
}

static void modules_catch_bad_alloc(void) {
  need_glibc("there is no C++ runtime of this C library");
  void* plugin = open_plugin(PLUGIN_CXX, RTLD_LOCAL);
  int (*const catches_bad_alloc)(size_t) = (int (*)(size_t))symbol(plugin, "catches_bad_alloc");
  EXPECT(catches_bad_alloc(opaque(PTRDIFF_MAX / 2)) == 1,
         "operator new of half the address range threw nothing");
  int (*const builds_and_sorts)(int) = (int (*)(int))symbol(plugin, "builds_and_sorts");
  EXPECT(builds_and_sorts(20000) == 1, "the module's container is wrong");
  dlclose(plugin);
}

static const Check checks[] = {
    {"blocks cross the borders of loaded libraries", blocks_cross_libraries},
    {"C++ modules of C programs catch bad_alloc", modules_catch_bad_alloc},
};
CHECK_MAIN(checks)
