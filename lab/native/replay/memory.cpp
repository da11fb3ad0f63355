// /proc and mallinfo2; see memory.h.
#include "replay/memory.h"

#include <dlfcn.h>
#include <malloc.h>

#include <cstdlib>

#include "common/system.h"
#include "replay/pages.h"

namespace ts::replay {
namespace {

constexpr std::int64_t kib = 1024;

// Where a function is that the dynamic loader has found.
template <class Function>
const void* library_of(Function* function, const char** name) {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<void*>(function), &info) == 0) return nullptr;
  if (name != nullptr) *name = info.dli_fname;
  return info.dli_fbase;
}

// The allocator's mallinfo2, or null: libc's knows nothing of another library's malloc. By its name,
// since glibc has it from 2.33 on.
auto own_mallinfo2() {
  static const auto found =
      reinterpret_cast<decltype(&::mallinfo2)>(dlsym(RTLD_DEFAULT, "mallinfo2"));
  static const bool is_own =
      found != nullptr && library_of(&std::malloc, nullptr) == library_of(found, nullptr);
  return is_own ? found : nullptr;
}

}  // namespace

Memory resident_now() {
  Memory memory;
  std::int64_t anonymous = 0;
  PieceReader lines{"/proc/self/smaps_rollup"};
  while (const char* const line = lines.next('\n')) {
    if (const std::int64_t found = number_after(line, "Anonymous:"); found >= 0) anonymous = found;
    if (const std::int64_t found = number_after(line, "LazyFree:"); found >= 0) {
      memory.lazy_free = found * kib;
    }
  }
  memory.resident = anonymous * kib - static_cast<std::int64_t>(own_bytes());
  return memory;
}

Memory memory_now() {
  Memory memory = resident_now();
  if (const auto mallinfo2_of_allocator = own_mallinfo2()) {
    const struct mallinfo2 info = mallinfo2_of_allocator();
    memory.allocator = static_cast<std::int64_t>(info.arena + info.hblkhd);
    memory.allocator_used = static_cast<std::int64_t>(info.uordblks + info.hblkhd);
  }
  return memory;
}

std::int64_t peak_rss_bytes() { return bytes_after("/proc/self/status", "VmHWM:"); }

const char* name_of_allocator() {
  const char* name = "";
  (void)library_of(&std::malloc, &name);
  return base_name(name);
}

}  // namespace ts::replay
