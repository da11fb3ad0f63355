// The system refuses when an input says so: the program is linked with --wrap, so that its calls
// for memory come here first. For one file of a program, since it defines them.
//
// It refuses to fail mremap, after which a heap never moves a block again (FullMemory does that),
// and to be used by two threads at once: the thread in the heap has the turn (seats.h).
#pragma once

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace ts::fuzz {

struct Refusals {
  unsigned granted = 0;  // so many calls first,
  unsigned left = 0;     // then so many are refused
  unsigned made = 0;

  bool refuse(int error) {
    if (left == 0) return false;
    if (granted != 0) {
      --granted;
      return false;
    }
    --left;
    ++made;
    errno = error;
    return true;
  }
};

inline Refusals refusals;

}  // namespace ts::fuzz

extern "C" {
void* __real_mmap(void* begin, std::size_t bytes, int protection, int flags, int file, off_t at);
int __real_munmap(void* begin, std::size_t bytes);
int __real_mprotect(void* begin, std::size_t bytes, int protection);
int __real_madvise(void* begin, std::size_t bytes, int advice);
void* __real_sbrk(std::intptr_t bytes);
int __real_pthread_setspecific(pthread_key_t key, const void* value);

void* __wrap_mmap(void* begin, std::size_t bytes, int protection, int flags, int file, off_t at) {
  if (ts::fuzz::refusals.refuse(ENOMEM)) return MAP_FAILED;
  return __real_mmap(begin, bytes, protection, flags, file, at);
}
int __wrap_munmap(void* begin, std::size_t bytes) {
  return ts::fuzz::refusals.refuse(ENOMEM) ? -1 : __real_munmap(begin, bytes);
}
int __wrap_mprotect(void* begin, std::size_t bytes, int protection) {
  return ts::fuzz::refusals.refuse(ENOMEM) ? -1 : __real_mprotect(begin, bytes, protection);
}
int __wrap_madvise(void* begin, std::size_t bytes, int advice) {
  return ts::fuzz::refusals.refuse(EAGAIN) ? -1 : __real_madvise(begin, bytes, advice);
}
void* __wrap_sbrk(std::intptr_t bytes) {
  return ts::fuzz::refusals.refuse(ENOMEM) ? MAP_FAILED : __real_sbrk(bytes);
}
int __wrap_pthread_setspecific(pthread_key_t key, const void* value) {
  // Its error is its result.
  return ts::fuzz::refusals.refuse(errno) ? ENOMEM : __real_pthread_setspecific(key, value);
}
}
