// The C library's part of os.h: thread exit and cancellation, forks, and names that not every
// version has. Compiled a second time for shared libraries (glibc_2_28.h).
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/bits.h"
#include "os/cancellation.h"
#include "os/os.h"
#include "os/system_call.h"

// The C library's recursive lock of its list of streams, and its flag of a single-threaded process.
// glibc has both, the flag since 2.32.
extern "C" {
[[gnu::weak]] void _IO_list_lock();
[[gnu::weak]] void _IO_list_unlock();
[[gnu::weak]] void _IO_list_resetlock();
#ifdef TS_FIRST_GLIBC
// Null before glibc 2.34 in a program linked without libpthread or libdl.
[[gnu::weak]] decltype(dlerror) dlerror;
[[gnu::weak]] decltype(dlsym) dlsym;
[[gnu::weak]] decltype(pthread_attr_setstacksize) pthread_attr_setstacksize;
[[gnu::weak]] decltype(pthread_create) pthread_create;
[[gnu::weak]] decltype(pthread_getspecific) pthread_getspecific;
[[gnu::weak]] decltype(pthread_key_delete) pthread_key_delete;
[[gnu::weak]] decltype(pthread_setspecific) pthread_setspecific;
#else
// Null in a static program that does not use them.
// NOLINTBEGIN(readability-redundant-declaration): the attribute is what is new
[[gnu::weak]] decltype(pthread_attr_setstacksize) pthread_attr_setstacksize;
[[gnu::weak]] decltype(pthread_create) pthread_create;
// NOLINTEND(readability-redundant-declaration)
[[gnu::weak]] extern char __libc_single_threaded;
#endif
// glibc's own pthread_key_create, whose public name some of our libraries define
// (libc/thread_keys.cpp), and the function that registers destructors of thread_local variables.
[[gnu::weak]] int __pthread_key_create(pthread_key_t* key, void (*destructor)(void*));
[[gnu::weak]] int __cxa_thread_atexit_impl(void (*destructor)(void*), void* object, void* library);
}

namespace ts::os {
namespace {

// A function, because compilers warn about a direct comparison if the name cannot be missing.
template <class Function>
constexpr bool is_there(Function* function) noexcept {
  return function != nullptr;
}

#ifdef TS_FIRST_GLIBC
// Looked up by name: a reference would make the library require glibc 2.32.
constinit const char* one_thread_flag = nullptr;

void find_one_thread_flag() noexcept {
  one_thread_flag = static_cast<const char*>(find_name(RTLD_DEFAULT, "__libc_single_threaded"));
}
#else
constinit const char* const one_thread_flag = &__libc_single_threaded;

void find_one_thread_flag() noexcept {}
#endif

// Whether the forking thread holds the lock of the list of streams between `prepare` and the other
// handlers. Threads that fork concurrently store the same value.
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
// The library has done this itself if it knew of several threads; doing it twice is harmless.
void reset_streams() noexcept {
  if (streams_are_held.load(std::memory_order_relaxed)) _IO_list_resetlock();
}

}  // namespace

namespace {

#ifdef TS_FIRST_GLIBC
bool has_keys() noexcept {
  return is_there(&::__pthread_key_create) && is_there(&::pthread_setspecific);
}
int create_key(pthread_key_t* key, void (*destructor)(void*)) noexcept {
  return ::__pthread_key_create(key, destructor);
}
#else
bool has_keys() noexcept { return true; }
int create_key(pthread_key_t* key, void (*destructor)(void*)) noexcept {
  return is_there(&::__pthread_key_create) ? ::__pthread_key_create(key, destructor)
                                           : ::pthread_key_create(key, destructor);
}
#endif

// The C library takes the dynamic linker's lock for this, which a thread that waits for this one
// may hold (a plugin whose constructor starts and joins a thread, for example). So a key is better.
bool call_without_key(void (*on_exit)(void*), void* argument) noexcept {
  static constinit char in_this_library = 0;
  return is_there(&::__cxa_thread_atexit_impl) &&
         ::__cxa_thread_atexit_impl(on_exit, argument, &in_this_library) == 0;
}

// 0: no key yet; `no_key`: the program has used them all up; otherwise the key plus one. acquire,
// release: a thread that sees the key can use it and finds exit_handler.
constinit std::atomic<std::uint32_t> key_plus_one{0};
constexpr std::uint32_t no_key = ~std::uint32_t{0};
constinit std::atomic<void (*)(void*)> exit_handler{nullptr};

// The process's key plus one, or `no_key`. If two threads create one at once, the exchange decides
// and the loser deletes its own.
std::uint32_t choose_key(void (*on_exit)(void*)) noexcept {
  pthread_key_t key;
  const bool has_key = create_key(&key, on_exit) == 0;
  std::uint32_t chosen = 0;
  exit_handler.store(on_exit, std::memory_order_relaxed);  // published with the key
  if (key_plus_one.compare_exchange_strong(chosen, has_key ? key + 1 : no_key,
                                           std::memory_order_acq_rel))
    return has_key ? key + 1 : no_key;
  if (has_key) ::pthread_key_delete(key);
  return chosen;
}

}  // namespace

bool call_at_thread_exit(void (*on_exit)(void*), void* argument) noexcept {
  std::uint32_t chosen = key_plus_one.load(std::memory_order_acquire);
  if (chosen == 0) {
    // Before glibc 2.34 and without libpthread, the main thread is the only one and ends with the
    // process. If libpthread is loaded later, its threads share the heap for those that could not
    // be registered.
    if (!has_keys()) return thread_id() == process_id();
    chosen = choose_key(on_exit);
  }
  if (chosen == no_key) return call_without_key(on_exit, argument);
  const bool is_set = ::pthread_setspecific(chosen - 1, argument) == 0;
  // acquire: everything that this read of the key comes before the next load
  std::atomic_thread_fence(std::memory_order_acquire);
  // acquire: pairs with give_thread_key_back. The program may own the key by now and must not find
  // our value in it.
  if (key_plus_one.load(std::memory_order_acquire) == chosen) return is_set;
  if (is_set) ::pthread_setspecific(chosen - 1, nullptr);
  return call_without_key(on_exit, argument);
}

constinit std::atomic<void (*)()> when_ends_are_untold{nullptr};

bool tells_all_thread_ends() noexcept {
  // relaxed: either value is right at any time
  return key_plus_one.load(std::memory_order_relaxed) != no_key;
}

bool give_thread_key_back() noexcept {
  // acq_rel: as above
  const std::uint32_t chosen = key_plus_one.exchange(no_key, std::memory_order_acq_rel);
  if (chosen == 0 || chosen == no_key) return false;
  void* const argument = ::pthread_getspecific(chosen - 1);
  ::pthread_key_delete(chosen - 1);
  if (argument != nullptr) call_without_key(exit_handler.load(std::memory_order_relaxed), argument);
  // acquire: pairs with its store
  if (auto* const call = when_ends_are_untold.load(std::memory_order_acquire)) call();
  return true;
}

// Handlers registered last are the first to prepare and the last to return.
bool call_around_fork(void (*prepare)(), void (*parent)(), void (*child)()) noexcept {
  find_one_thread_flag();
  return ::pthread_atfork(prepare, parent, child) == 0 &&
         ::pthread_atfork(hold_streams, let_go_of_streams, reset_streams) == 0;
}

bool has_one_thread() noexcept { return one_thread_flag != nullptr && *one_thread_flag != 0; }

bool has_several_threads() noexcept { return one_thread_flag != nullptr && *one_thread_flag == 0; }

void* find_name(void* library, const char* name) noexcept {
  if (!is_there(&::dlsym)) return nullptr;
  void* const found = ::dlsym(library, name);
  // The program must not find our error where it expects its own.
  if (found == nullptr && is_there(&::dlerror)) static_cast<void>(::dlerror());
  return found;
}

namespace {

// Upper bound of the bytes that thread-local variables need on a new thread's stack.
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
  // A static program may lack this function; then the stack takes as much address space as any
  // other.
  if (is_there(&::pthread_attr_setstacksize))
    ::pthread_attr_setstacksize(&attributes, align_up(stack, page_bytes()));
    // By the library, whose own signals stay open: setuid() waits for one of them in every thread.
#ifdef __GLIBC__
  constexpr std::uint64_t of_library = std::uint64_t{3} << 31;  // 32 and 33
#else
  constexpr std::uint64_t of_library = std::uint64_t{7} << 31;
#endif
  constexpr std::uint64_t all = ~of_library;
  std::uint64_t before = 0;
  call(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
  pthread_t thread;
  const bool started = ::pthread_create(&thread, &attributes, run, nullptr) == 0;
  call(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, sizeof before);
  ::pthread_attr_destroy(&attributes);
  return started;
}

int disable_cancellation() noexcept {
  // Before glibc 2.34 and without libpthread, this does nothing; threads cannot be cancelled then.
  int before = PTHREAD_CANCEL_ENABLE;
  ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  return before;
}

void restore_cancellation(int state) noexcept { ::pthread_setcancelstate(state, nullptr); }

}  // namespace ts::os
