// A C++ program with the engine linked in. It uses as little of the C++ runtime as possible, so
// that a static one contains only what the engine asks for: without that, running out of memory
// would end the process.
#include <malloc.h>

#include <cstdint>
#include <new>

#include "check.h"

extern "C" std::size_t malloc_good_size(std::size_t bytes);

namespace {

const std::size_t too_many = opaque(PTRDIFF_MAX / 2);

CHECK("new allocates from it") {
  for (std::size_t bytes = 1; bytes < 100000; bytes += 1 + bytes / 3) {
    char* const block = new char[bytes];
    EXPECT(malloc_usable_size(block) == malloc_good_size(bytes),
           "%zu usable bytes of new char[%zu]", malloc_usable_size(block), bytes);
    fill(block, bytes, bytes);
    EXPECT_FILLED(block, bytes, bytes);
    delete[] block;
  }
  struct alignas(512) Aligned {
    char text[512];
  };
  auto* const aligned = static_cast<Aligned*>(opaque_pointer(new Aligned));
  EXPECT(reinterpret_cast<std::uintptr_t>(aligned) % 512 == 0, "%p", static_cast<void*>(aligned));
  delete aligned;
}

CHECK("new throws bad_alloc") {
  bool caught = false;
  try {
    delete[] static_cast<char*>(opaque_pointer(new char[too_many]));
  } catch (const std::bad_alloc&) {
    caught = true;
  }
  EXPECT(caught, "no bad_alloc");
}

}  // namespace
