// The same in C++: operator new, and an exception when memory runs out.
#include <tsmalloc/tsmalloc.h>

#include <cstdint>
#include <cstdio>
#include <new>

int main() {
  char* const block = new char[33];
  const bool ours = ts_usable_size(block) == ts_good_size(33, 0);
  bool thrown = false;
  try {
    volatile std::size_t bytes = PTRDIFF_MAX;
    delete[] new char[bytes];
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  std::printf("version %d, %s, %s\n", ts_version(), ours ? "ours" : "another's",
              thrown ? "throws" : "does not throw");
  delete[] block;
  return 0;
}
