// A resource over the archive, whose blocks the process's free does not know; the headers in the
// order that needs TSMALLOC_PREFIXED.
#include <tsmalloc/memory_resource.hpp>
// after it
#include <tsmalloc/prefixed.h>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  ts::arena_resource arena;
  {
    std::pmr::vector<int> numbers{&arena};
    for (int i = 0; i < 100000; ++i) numbers.push_back(i);
  }
  std::pmr::memory_resource* const resource = ts::resource();
  void* const block = resource->allocate(33, 1);
  const bool ours = arena.arena() != nullptr && ts_owns(block) == 1;
  resource->deallocate(block, 33, 1);
  bool thrown = false;
  try {
    volatile std::size_t bytes = PTRDIFF_MAX;
    resource->deallocate(resource->allocate(bytes), bytes);
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  std::printf("version %d, %s, %s\n", ts_version(), ours ? "ours" : "another's",
              thrown ? "throws" : "does not throw");
  return 0;
}
