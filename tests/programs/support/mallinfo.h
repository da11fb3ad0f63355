// What the allocator that serves malloc says of its heap.
//
// Why it exists: a program that was linked with libc finds a mallinfo2 under every allocator, and
// libc's knows nothing of another's heap. What it refuses to do: answer for an allocator that has
// no mallinfo2 of its own, or one that says nothing (scudo's: zeros while blocks are live).
#pragma once

#include <dlfcn.h>
#include <malloc.h>

#include <cstdlib>
#include <optional>

namespace ts::test {

// To be called while a block is live.
inline std::optional<struct mallinfo2> own_mallinfo2() {
  Dl_info of_malloc{};
  Dl_info of_mallinfo2{};
  const bool is_own = ::dladdr(reinterpret_cast<void*>(&std::malloc), &of_malloc) != 0 &&
                      ::dladdr(reinterpret_cast<void*>(&::mallinfo2), &of_mallinfo2) != 0 &&
                      of_malloc.dli_fbase == of_mallinfo2.dli_fbase;
  if (!is_own) return {};
  const struct mallinfo2 info = ::mallinfo2();
  if (info.arena == 0 && info.hblkhd == 0) return {};
  return info;
}

}  // namespace ts::test
