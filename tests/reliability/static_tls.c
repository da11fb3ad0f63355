// "Cannot allocate memory in static TLS block": the allocator uses so little static thread-local
// storage that it can still be loaded after other libraries have taken theirs.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"

enum { most_tls_bytes = 64 };

// How much thread-local storage the object that contains malloc has.
typedef struct Storage {
  uintptr_t function;
  size_t bytes;
  bool is_found;
} Storage;

static int look_into(struct dl_phdr_info* object, size_t size, void* argument) {
  (void)size;
  Storage* const storage = argument;
  size_t bytes = 0;
  bool is_it = false;
  for (size_t i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* const part = &object->dlpi_phdr[i];
    if (part->p_type == PT_TLS) bytes = part->p_memsz;
    if (part->p_type == PT_LOAD)
      is_it |= storage->function - (object->dlpi_addr + part->p_vaddr) < part->p_memsz;
  }
  if (!is_it) return 0;
  storage->bytes = bytes;
  storage->is_found = true;
  return 1;
}

CHECK("at most 64 bytes of static thread-local storage are taken") {
  Storage storage = {.function = (uintptr_t)find_function("malloc")};
  dl_iterate_phdr(look_into, &storage);
  REQUIRE(storage.is_found, "malloc is in no object");
  report_figure("%s has %zu bytes of thread-local storage", tested_library(), storage.bytes);
  EXPECT(storage.bytes <= most_tls_bytes || !library_is_ours(), "%zu bytes", storage.bytes);
}

// ---- loaded late, into a process that has libc's malloc ----

static const char* const path_variable = "LIBRARY_TO_LOAD";

// The same check again, in a process without the preload, which finds the library's path in its
// environment.
__attribute__((noreturn)) static void begin_again_without_preload(const char* check) {
  Dl_info allocator;
  const char* const preload = getenv("LD_PRELOAD");
  if (preload == NULL || *preload == '\0' || dladdr(find_function("malloc"), &allocator) == 0)
    skip_check("libc's malloc is no library of its own");
  REQUIRE(setenv(path_variable, allocator.dli_fname, 1) == 0, "setenv failed");
  unsetenv("LD_PRELOAD");
  execl("/proc/self/exe", "static_tls", check, (char*)NULL);
  REQUIRE(false, "cannot begin again");
  abort();
}

static void* (*loaded_malloc)(size_t);
static void (*loaded_free)(void*);

static void use_it(void) {
  uint64_t random = 3;
  void* block[100];
  for (size_t i = 0; i < COUNT_OF(block); ++i) {
    block[i] = loaded_malloc(300);
    REQUIRE(block[i] != NULL, "null");
    fill(block[i], 300, i + random);
  }
  for (size_t i = 0; i < COUNT_OF(block); ++i) {
    EXPECT_FILLED(block[i], 300, i + random);
    loaded_free(block[i]);
  }
}

static pthread_barrier_t is_loaded;

static void* use_it_once_it_is_there(void* argument) {
  pthread_barrier_wait(&is_loaded);
  use_it();
  return argument;
}

static void load_others(const char* pattern, int count) {
  for (int i = 1; i <= count; ++i) {
    char path[4096];
    snprintf(path, sizeof path, pattern, i);
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != NULL, "dlopen: %s", dlerror());
    char* (*const storage)(void) = (char* (*)(void))dlsym(library, "storage_of_thread");
    REQUIRE(storage != NULL, "no function in library %d", i);
    *storage() = 1;
  }
}

CHECK("it can be loaded when others have 1 KB of static storage") {
  const char* const path = getenv(path_variable);
  if (path == NULL)
    begin_again_without_preload("it can be loaded when others have 1 KB of static storage");
  pthread_barrier_init(&is_loaded, NULL, 2);
  const pthread_t older = start_thread(use_it_once_it_is_there, NULL);
  load_others(STATIC_TLS_LIBRARY, STATIC_TLS_LIBRARIES);
  load_others(TLS_LIBRARY, 1);
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != NULL, "dlopen: %s", dlerror());
  loaded_malloc = (void* (*)(size_t))dlsym(library, "malloc");
  loaded_free = (void (*)(void*))dlsym(library, "free");
  REQUIRE(loaded_malloc != NULL && loaded_free != NULL, "dlsym: %s", dlerror());
  REQUIRE(loaded_malloc != malloc, "the program's malloc is the library's already");
  use_it();
  pthread_barrier_wait(&is_loaded);
  pthread_join(older, NULL);
}
