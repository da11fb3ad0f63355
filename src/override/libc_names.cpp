// glibc's own names of the malloc family. A static program that uses one would get malloc.o of
// libc.a for it, and with that a second malloc.
#include <malloc.h>
#include <stdlib.h>

#include <cstddef>

extern "C" {
[[gnu::visibility("default")]] void* __libc_malloc(std::size_t bytes) { return malloc(bytes); }
[[gnu::visibility("default")]] void __libc_free(void* block) { free(block); }
[[gnu::visibility("default")]] void* __libc_calloc(std::size_t count, std::size_t bytes) {
  return calloc(count, bytes);
}
[[gnu::visibility("default")]] void* __libc_realloc(void* block, std::size_t bytes) {
  return realloc(block, bytes);
}
[[gnu::visibility("default")]] void* __libc_memalign(std::size_t alignment, std::size_t bytes) {
  return memalign(alignment, bytes);
}
[[gnu::visibility("default")]] void* __libc_valloc(std::size_t bytes) { return valloc(bytes); }
[[gnu::visibility("default")]] void* __libc_pvalloc(std::size_t bytes) { return pvalloc(bytes); }
[[gnu::visibility("default")]] int __posix_memalign(void** result, std::size_t alignment,
                                                    std::size_t bytes) {
  return posix_memalign(result, alignment, bytes);
}
}
