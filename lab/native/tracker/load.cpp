// dlopen, for its flag RTLD_DEEPBIND: a library loaded that way uses libc's malloc and free, past
// every preloaded allocator.
#include <dlfcn.h>

#include "tracker/call.h"

namespace {
constinit ts::Next<void*(const char*, int)> next_dlopen{"dlopen"};
}  // namespace

// A tail call, since dlopen searches the directories listed in its caller's file.
extern "C" void* dlopen(const char* library, int flags) {
  if ((flags & RTLD_DEEPBIND) != 0 && library != nullptr) ts::note_deep_binding(library);
  return next_dlopen.get()(library, flags);
}
