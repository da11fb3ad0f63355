// glibc's functions that make a thread-specific key, of which a process can have PTHREAD_KEYS_MAX.
// The library needs one itself, to learn that threads end, and leaves it to a program that has
// taken all others. Weak, since older libc.a's define the same names as strongly as others.
#include <pthread.h>
#include <threads.h>

#include <cerrno>

#include "os/os.h"

// pthread_key_create by its other name.
extern "C" int __pthread_key_create(pthread_key_t* key, void (*destructor)(void*));

namespace {

// Not compared in place: the compilers warn where a function cannot be missing.
template <class Function>
constexpr bool is_there(Function* function) noexcept {
  return function != nullptr;
}

int create_key(pthread_key_t* key, void (*destructor)(void*)) noexcept {
  // Before glibc 2.34, libpthread has the keys. A program without it may ask all the same, if it
  // takes the name for a weak one.
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
