// The C library's side of os.h: threads that end or are cancelled, forks, and names that not every
// version has. It is compiled a second time for shared libraries (glibc_2_28.h).
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

#include "base/bits.h"
#include "os/cancellation.h"
#include "os/os.h"

// The C library's lock of the list of streams, which nests, and its flag of a process with one
// thread. glibc has both, the flag since 2.32.
extern "C" {
[[gnu::weak]] void _IO_list_lock();
[[gnu::weak]] void _IO_list_unlock();
[[gnu::weak]] void _IO_list_resetlock();
#ifdef TS_FIRST_GLIBC
// Null before glibc 2.34 in a program that is linked without libpthread, or without libdl.
[[gnu::weak]] decltype(dlerror) dlerror;
[[gnu::weak]] decltype(dlsym) dlsym;
[[gnu::weak]] decltype(pthread_attr_setstacksize) pthread_attr_setstacksize;
[[gnu::weak]] decltype(pthread_create) pthread_create;
[[gnu::weak]] decltype(pthread_key_create) pthread_key_create;
[[gnu::weak]] decltype(pthread_key_delete) pthread_key_delete;
[[gnu::weak]] decltype(pthread_setspecific) pthread_setspecific;
#else
// Null in a static program that uses none.
// NOLINTBEGIN(readability-redundant-declaration): the attribute is what is new
[[gnu::weak]] decltype(pthread_attr_setstacksize) pthread_attr_setstacksize;
[[gnu::weak]] decltype(pthread_create) pthread_create;
// NOLINTEND(readability-redundant-declaration)
[[gnu::weak]] extern char __libc_single_threaded;
#endif
}

namespace ts::os {
namespace {

// Not compared in place: the compilers warn where a function cannot be missing.
template <class Function>
constexpr bool is_there(Function* function) noexcept {
  return function != nullptr;
}

#ifdef TS_FIRST_GLIBC
// The flag by its name, since a reference would make the library need glibc 2.32.
constinit const char* one_thread_flag = nullptr;

void find_one_thread_flag() noexcept {
  one_thread_flag = static_cast<const char*>(find_name(RTLD_DEFAULT, "__libc_single_threaded"));
}
#else
constinit const char* const one_thread_flag = &__libc_single_threaded;

void find_one_thread_flag() noexcept {}
#endif

// Whether the thread that forks has the lock of the list of streams, between `prepare` and the
// other handlers. Several threads that fork store the same value.
constinit std::atomic<bool> streams_are_held{false};

void hold_streams() noexcept {
  const bool can_be_held = _IO_list_lock != nullptr && _IO_list_unlock != nullptr &&
                           _IO_list_resetlock != nullptr && !has_one_thread();
  streams_are_held.store(can_be_held, std::memory_order_relaxed);
  if (can_be_held) _IO_list_lock();
}
void let_go_of_streams() noexcept {
  if (streams_are_held.load(std::memory_order_relaxed)) _IO_list_unlock();
}
// The library has done so already, if it knew of several threads; doing it twice does no harm.
void reset_streams() noexcept {
  if (streams_are_held.load(std::memory_order_relaxed)) _IO_list_resetlock();
}

}  // namespace

bool call_at_thread_exit(void (*on_exit)(void*), void* argument) noexcept {
  // 0: no key yet; otherwise the key plus one. Two threads that create a key at once agree on one
  // by the exchange; the loser deletes its own.
  static constinit std::atomic<std::uint32_t> key_plus_one{0};
  std::uint32_t chosen = key_plus_one.load(std::memory_order_acquire);
  if (chosen == 0) {
    // Before glibc 2.34, and without libpthread, a program's first thread is its only one and ends
    // with it. If libpthread is loaded later, its threads share what is for those that were refused.
    if (!is_there(&::pthread_key_create) || !is_there(&::pthread_setspecific))
      return ::syscall(SYS_gettid) == ::getpid();
    pthread_key_t key;
    if (::pthread_key_create(&key, on_exit) != 0) return false;
    if (key_plus_one.compare_exchange_strong(chosen, key + 1, std::memory_order_acq_rel)) {
      chosen = key + 1;
    } else {
      ::pthread_key_delete(key);
    }
  }
  return ::pthread_setspecific(chosen - 1, argument) == 0;
}

// Handlers registered last are the first to prepare, and the last to come back.
bool call_around_fork(void (*prepare)(), void (*parent)(), void (*child)()) noexcept {
  find_one_thread_flag();
  return ::pthread_atfork(prepare, parent, child) == 0 &&
         ::pthread_atfork(hold_streams, let_go_of_streams, reset_streams) == 0;
}

bool has_one_thread() noexcept { return one_thread_flag != nullptr && *one_thread_flag != 0; }

void* find_name(void* library, const char* name) noexcept {
  if (!is_there(&::dlsym)) return nullptr;
  void* const found = ::dlsym(library, name);
  // The program must not find our error where it expects its own.
  if (found == nullptr && is_there(&::dlerror)) static_cast<void>(::dlerror());
  return found;
}

namespace {

// How many bytes thread-local variables need on the stack of each new thread, at most.
std::size_t thread_local_bytes() noexcept {
  std::size_t bytes = 0;
  const auto add = [](dl_phdr_info* module, std::size_t, void* sum) {
    for (unsigned i = 0; i < module->dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = module->dlpi_phdr[i];
      if (part.p_type == PT_TLS) *static_cast<std::size_t*>(sum) += part.p_memsz + part.p_align;
    }
    return 0;
  };
  ::dl_iterate_phdr(add, &bytes);
  return bytes;
}

}  // namespace

bool start_thread(void* (*run)(void*)) noexcept {
  if (!is_there(&::pthread_create)) return false;
  constexpr std::size_t own_stack = std::size_t{64} << 10;
  const long least = ::sysconf(_SC_THREAD_STACK_MIN);
  const std::size_t stack =
      own_stack + thread_local_bytes() + static_cast<std::size_t>(least > 0 ? least : 16384);
  pthread_attr_t attributes;
  if (::pthread_attr_init(&attributes) != 0) return false;
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  // A static program may lack it: then the stack takes as many addresses as any other.
  if (is_there(&::pthread_attr_setstacksize))
    ::pthread_attr_setstacksize(&attributes, align_up(stack, page_bytes()));
  // By the library, whose own signals stay open: setuid() waits for one of them in every thread.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const bool started = ::pthread_create(&thread, &attributes, run, nullptr) == 0;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ::pthread_attr_destroy(&attributes);
  return started;
}

int disable_cancellation() noexcept {
  // Before glibc 2.34, and without libpthread, the call does nothing; no thread is cancelled then.
  int before = PTHREAD_CANCEL_ENABLE;
  ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  return before;
}

void restore_cancellation(int state) noexcept { ::pthread_setcancelstate(state, nullptr); }

void abort_process() noexcept { std::abort(); }

}  // namespace ts::os
