// A library that allocates and frees for plugins.c, also in its constructor and destructor.
#include <stdlib.h>
#include <string.h>

static char* kept;

__attribute__((constructor)) static void on_load(void) {
  kept = strdup("allocated while the library is loaded");
}
__attribute__((destructor)) static void on_unload(void) { free(kept); }

void* plugin_allocate(size_t bytes) { return malloc(bytes); }
void plugin_release(void* block) { free(block); }
