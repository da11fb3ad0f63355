// A callback at process exit.
#include "os/os.h"

// From the C++ ABI.
extern "C" int __cxa_atexit(void (*end)(void*), void* argument, void* library) noexcept;

namespace ts::os {

// Not atexit(), whose handlers belong to a library and run with its destructors.
bool call_at_exit(void (*end)(void*)) noexcept {
  return ::__cxa_atexit(end, nullptr, nullptr) == 0;
}

}  // namespace ts::os
