// Finds std::get_new_handler and the function that throws std::bad_alloc at run time. Weak
// references suffice for programs linked with the C++ runtime. They are null in a C program that
// later loads a C++ module privately (a Python extension, say), so then the loaded libraries are
// searched for the runtime. Called only when memory runs out, never at start-up.
//
// The only file compiled with exceptions, to catch those of a program's operator new or new-handler
// in a nothrow form.
#include "libc/cxx_runtime.h"

#include <dlfcn.h>

#include <initializer_list>

#include "base/check.h"
#include "os/os.h"

// What `catch` compiles to. Weak, since a process without a C++ runtime throws nothing.
__asm__(
    ".weak __gxx_personality_v0\n"
    ".weak __cxa_begin_catch\n"
    ".weak __cxa_end_catch\n"
    ".weak _Unwind_Resume\n"
    ".weak _ZSt9terminatev\n");

namespace ts {
namespace {

using NewHandler = void (*)();

extern "C" {
[[gnu::weak]] NewHandler weak_get_new_handler() noexcept __asm__("_ZSt15get_new_handlerv");
[[gnu::weak]] void weak_throw_bad_alloc() __asm__("_ZSt17__throw_bad_allocv");
}

// A C++ runtime that is already loaded, or null. The handle is never closed, so that functions
// found in it stay.
void* loaded_runtime() noexcept {
  // Looked up by name, since the linker warns about every static program that mentions dlopen;
  // there, the lookup finds nothing.
  const auto open = reinterpret_cast<decltype(&::dlopen)>(os::find_name(RTLD_DEFAULT, "dlopen"));
  if (open == nullptr) return nullptr;
  for (const char* name : {"libstdc++.so.6", "libc++.so.1"}) {
    if (void* handle = open(name, RTLD_LAZY | RTLD_NOLOAD)) return handle;
  }
  return nullptr;
}

template <class Function>
Function find(Function linked, const char* symbol) noexcept {
  if (linked != nullptr) return linked;
  void* runtime = loaded_runtime();
  return runtime == nullptr ? nullptr : reinterpret_cast<Function>(os::find_name(runtime, symbol));
}

}  // namespace

bool call_new_handler() {
  const auto get_new_handler = find(&weak_get_new_handler, "_ZSt15get_new_handlerv");
  const NewHandler handler = get_new_handler == nullptr ? nullptr : get_new_handler();
  if (handler == nullptr) return false;
  handler();
  return true;
}

void throw_bad_alloc() {
  if (const auto do_throw = find(&weak_throw_bad_alloc, "_ZSt17__throw_bad_allocv")) do_throw();
  fatal(
      "out of memory in operator new, and no C++ runtime is loaded that could throw "
      "std::bad_alloc");
}

void* new_or_null(void* (*form)(std::size_t), std::size_t bytes) noexcept {
  try {
    return form(bytes);
  } catch (...) {
    return nullptr;
  }
}

void* new_or_null(void* (*form)(std::size_t, std::align_val_t), std::size_t bytes,
                  std::align_val_t alignment) noexcept {
  try {
    return form(bytes, alignment);
  } catch (...) {
    return nullptr;
  }
}

}  // namespace ts
