// glibc's functions that create a thread-specific key, of which a process has PTHREAD_KEYS_MAX. The
// library uses one itself, to notice that threads end, and gives it up to a program that has used
// all others. Weak, since older versions of libc.a define the same names strongly.
#include <pthread.h>
#include <threads.h>

#include <cerrno>

#include "os/os.h"

// pthread_key_create under its other name.
extern "C" int __pthread_key_create(pthread_key_t* key, void (*destructor)(void*));

namespace {

// A function, because compilers warn about a direct comparison if the name cannot be missing.
template <class Function>
constexpr bool is_there(Function* function) noexcept {
  return function != nullptr;
}

int create_key(pthread_key_t* key, void (*destructor)(void*)) noexcept {
  // Before glibc 2.34, keys are in libpthread. A program without it may still call this if it
  // declares the name as weak.
  if (!is_there(&__pthread_key_create)) return EAGAIN;
  const int error = __pthread_key_create(key, destructor);
  const bool is_tried_again = error == EAGAIN && ts::os::give_thread_key_back();
  return is_tried_again ? __pthread_key_create(key, destructor) : error;
}

}  // namespace

extern "C" {
[[gnu::visibility("default"), gnu::weak]] int pthread_key_create(
    pthread_key_t* key, void (*destructor)(void*)) noexcept {
  return create_key(key, destructor);
}
[[gnu::visibility("default"), gnu::weak]] int tss_create(tss_t* key, tss_dtor_t destructor) {
  return create_key(key, destructor) == 0 ? thrd_success : thrd_error;
}
}
