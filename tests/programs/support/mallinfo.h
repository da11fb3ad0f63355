// Heap statistics of the allocator that provides malloc. A program linked with libc finds a
// mallinfo2 under every allocator, but libc's knows nothing of another heap, so this returns
// nothing if the allocator has no mallinfo2 of its own, or a dummy (scudo's: zeros while blocks are
// live).
#pragma once

#include <dlfcn.h>
#include <malloc.h>

#include <cstdlib>
#include <optional>

namespace ts::test {

// Call it while a block is live.
inline std::optional<struct mallinfo2> own_mallinfo2() {
  // Looked up by name: glibc has it since 2.33, but the program also runs on older ones.
  void* const mallinfo2 = ::dlsym(RTLD_DEFAULT, "mallinfo2");
  Dl_info of_malloc{};
  Dl_info of_mallinfo2{};
  const bool is_own =
      mallinfo2 != nullptr && ::dladdr(reinterpret_cast<void*>(&std::malloc), &of_malloc) != 0 &&
      ::dladdr(mallinfo2, &of_mallinfo2) != 0 && of_malloc.dli_fbase == of_mallinfo2.dli_fbase;
  if (!is_own) return {};
  const struct mallinfo2 info = reinterpret_cast<decltype(&::mallinfo2)>(mallinfo2)();
  if (info.arena == 0 && info.hblkhd == 0) return {};
  return info;
}

}  // namespace ts::test
