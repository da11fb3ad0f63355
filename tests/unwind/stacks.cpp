// Compares stacks wherever malloc may be called: before constructors and after destructors, in
// threads, signal handlers, coroutines, children of vfork, and between a dlopen and a dlclose. The
// calls are in kernels.cpp.
//
//   stacks [PLUGIN PLUGIN]
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "unwind/compare.h"
#include "unwind/unwind.h"

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  std::abort();
}

// Before all constructors of the program, if possible in it.
void early() {
  ts::os::refresh_modules();
  void* first[1];
  backtrace(first, 1);  // loads libgcc
  compare_stacks();
}
#ifdef TS_HAS_PREINIT
[[gnu::section(".preinit_array"), gnu::used]] void (*const run_early)() = early;
#else
[[gnu::constructor(101)]] void run_early() { early(); }
#endif
[[gnu::constructor(102)]] void construct() { compare_stacks(); }
struct Global {
  Global() { compare_stacks(); }
  ~Global() { compare_stacks(); }
} global;
[[gnu::destructor(101)]] void destroy_late() {
  compare_stacks();
  report_stacks("- late end");
}

void compare_several() {
  for (int i = 0; i < 50; ++i) compare_stacks();
}

void threads() {
  std::vector<std::thread> all;
  for (int i = 0; i < 4; ++i) all.emplace_back(run_kernels);
  for (std::thread& thread : all) thread.join();
}

// ---- signal handlers ----

void handle(int) { compare_stacks(); }
std::atomic<int> interruptions{0};
// (A processor-time timer would fire at kernel ticks, a few hundred times a second.)
timer_t timer;
void interrupt_soon() {
  const itimerspec soon = {{0, 0}, {0, 20'000 + interruptions * 7'919 % 100'000}};
  timer_settime(timer, 0, &soon, nullptr);
}
void handle_interruption(int) {
  compare_interrupted_stacks();
  ++interruptions;
  interrupt_soon();
}

void set_handler(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  require(sigaction(number, &action, nullptr) == 0, "sigaction");
}

// In a handler on a stack of its own, and in one that interrupts it.
void handle_nested(int number) {
  compare_stacks();
  if (number == SIGUSR1) raise(SIGUSR2);
  compare_stacks();
}
void signals() {
  static char memory[1 << 16];
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = sizeof memory;
  require(sigaltstack(&stack, nullptr) == 0, "sigaltstack");
  set_handler(SIGUSR1, handle_nested);
  set_handler(SIGUSR2, handle_nested);
  for (int i = 0; i < 100; ++i) raise(SIGUSR1);
  set_handler(SIGSEGV, handle);
  set_handler(SIGUSR1, handle);
  for (int i = 0; i < 100; ++i) kill(getpid(), SIGUSR1);
  stack.ss_flags = SS_DISABLE;
  sigaltstack(&stack, nullptr);
  raise(SIGUSR1);
}

// At any instruction.
[[gnu::noinline]] unsigned work(unsigned levels) {
  volatile char memory[40];
  memory[0] = static_cast<char>(levels);
  if (levels == 0) return 1;
  const unsigned left = work(levels - 1);
  return left + work(levels - 1) + static_cast<unsigned>(memory[0]);
}
int compare_words(const void* a, const void* b) { return std::memcmp(a, b, sizeof(unsigned)); }
void interruptions_anywhere() {
  set_handler(SIGALRM, handle_interruption);
  require(timer_create(CLOCK_MONOTONIC, nullptr, &timer) == 0, "timer_create");
  interrupt_soon();
  std::vector<unsigned> words(5000);
  while (interruptions < 300) {
    for (unsigned i = 0; i < words.size(); ++i) words[i] = i * 2654435761U;
    std::qsort(words.data(), words.size(), sizeof words[0], compare_words);
    words[0] = work(10);
  }
  timer_delete(timer);
}

// ---- coroutines ----

ucontext_t main_context;
ucontext_t coroutine_context;
void coroutine() {
  for (int i = 0; i < 50; ++i) {
    compare_several();
    swapcontext(&coroutine_context, &main_context);
  }
}
void contexts() {
  static char stack[1 << 16];
  require(getcontext(&coroutine_context) == 0, "getcontext");
  coroutine_context.uc_stack.ss_sp = stack;
  coroutine_context.uc_stack.ss_size = sizeof stack;
  coroutine_context.uc_link = &main_context;
  makecontext(&coroutine_context, coroutine, 0);
  for (int i = 0; i < 50; ++i) {
    swapcontext(&main_context, &coroutine_context);
    compare_stacks();
  }
}

// ---- processes ----

void vforks() {
  for (int i = 0; i < 50; ++i) {
    const pid_t child = vfork();
    if (child == 0) {
      compare_several();
      _exit(0);
    }
    int status = 1;
    require(waitpid(child, &status, 0) == child && status == 0, "the child of the vfork ends well");
    compare_stacks();
  }
}
void forks() {
  for (int i = 0; i < 2; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      run_kernels();
      report_stacks("in the child of a fork");
      _exit(0);
    }
    int status = 1;
    require(waitpid(child, &status, 0) == child && status == 0, "the child of the fork ends well");
  }
  compare_several();
}

// ---- libraries that are loaded and unloaded ----

bool module_is_met(const char* path, std::uintptr_t code) {
  for (unsigned i = 0; i < ts::os::max_modules; ++i) {
    const ts::os::Module* const module = ts::os::module_met(i);
    if (module != nullptr && code >= module->begin && code < module->end &&
        std::strcmp(module->path, path) == 0)
      return module->build_id_bytes == 20;
  }
  return false;
}

void plugins(char** paths) {
  const void* places[2] = {};
  for (int i = 0; i < 40; ++i) {
    const char* const path = paths[i % 2];
    void* const library = dlopen(path, RTLD_NOW);
    require(library != nullptr, "dlopen");
    using Call = int(void (*)(), int);
    auto* const call = reinterpret_cast<Call*>(dlsym(library, "call_from_plugin"));
    require(call != nullptr, "dlsym");
    for (int levels = 0; levels < 20; ++levels) call(compare_stacks, levels);
    places[i % 2] = reinterpret_cast<const void*>(call);
    require(dlclose(library) == 0, "dlclose");
    require(module_is_met(path, reinterpret_cast<std::uintptr_t>(places[i % 2])),
            "a module is known after it was unloaded");
    if (i % 8 == 7) ts::os::refresh_modules();
  }
  require(places[0] == places[1], "one library comes to the place of the other");
}

// A copy of a library, which is another module.
void load_copy(const char* path, const char* copy) {
  std::FILE* const from = std::fopen(path, "rb");
  std::FILE* const to = std::fopen(copy, "wb");
  require(from != nullptr && to != nullptr, "a copy of a library");
  char bytes[4096];
  for (std::size_t read; (read = std::fread(bytes, 1, sizeof bytes, from)) != 0;)
    require(std::fwrite(bytes, 1, read, to) == read, "a copy of a library");
  std::fclose(from);
  std::fclose(to);
  void* const library = dlopen(copy, RTLD_NOW);
  std::remove(copy);
  require(library != nullptr, "dlopen of a copy");
  using Call = int(void (*)(), int);
  reinterpret_cast<Call*>(dlsym(library, "call_from_plugin"))(compare_stacks, 1);
}

// Once the table is full, a library loaded where another one was has no record of its own.
void more_modules_than_records(char** paths) {
  char folder[] = "/tmp/stacks-XXXXXX";
  require(mkdtemp(folder) != nullptr, "mkdtemp");
  for (unsigned i = 0; i < ts::os::max_modules; ++i) {
    if (ts::os::module_met(ts::os::max_modules - 1) != nullptr) break;
    char copy[sizeof folder + 16];
    std::snprintf(copy, sizeof copy, "%s/%u.so", folder, i);
    load_copy(paths[0], copy);
  }
  rmdir(folder);
  require(ts::os::module_met(ts::os::max_modules - 1) != nullptr, "the table of modules is full");
  void* places[2] = {};
  for (int i = 0; i < 40; ++i) {
    void* const library = dlopen(paths[i % 2], RTLD_NOW);
    require(library != nullptr, "dlopen");
    using Call = int(void (*)(), int);
    places[i % 2] = dlsym(library, "call_from_plugin");
    for (int levels = 0; levels < 20; ++levels)
      reinterpret_cast<Call*>(places[i % 2])(compare_stacks, levels);
    require(dlclose(library) == 0, "dlclose");
  }
  require(places[0] == places[1], "one library comes to the place of the other");
}

#if defined(__x86_64__)
// ---- code without tables ----

void* make_code(const unsigned char* bytes, std::size_t length) {
  void* const page =
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(page != MAP_FAILED, "mmap");
  std::memcpy(page, bytes, length);
  return page;
}

using Made = void(void (*)());

// push rbp; mov rbp, rsp; call rdi; pop rbp; ret
constexpr unsigned char with_frame_pointer[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
// push rbp; mov ebp, 1; call rdi; pop rbp; ret: an invalid frame pointer. The number is the first
// argument.
constexpr unsigned char without_frame_pointer[] = {0x55, 0x48, 0x89, 0xf5, 0xff, 0xd7, 0x5d, 0xc3};

Made* passed_code = nullptr;
[[gnu::noinline]] void call_through(int levels) {
  if (levels == 0) {
    passed_code(compare_stacks_beyond);
  } else {
    call_through(levels - 1);
  }
  asm volatile("");
}
bool went_through = false;
void look_through() {
  ts::os::UnwoundStack stack;
  ts::os::unwind(stack, __builtin_return_address(0));
  went_through = stack.is_whole && stack.depth >= 4;
}
void look_only() {
  ts::os::UnwoundStack stack;
  ts::os::unwind(stack);
  require(stack.depth >= 1, "a frame of our own is found");
}

void made_code() {
  void* const code = make_code(with_frame_pointer, sizeof with_frame_pointer);
  passed_code = reinterpret_cast<Made*>(code);
  for (int levels = 0; levels < 40; ++levels) call_through(levels);
  passed_code(look_through);
  require(went_through, "frame pointers lead out of code without tables");
  munmap(code, 4096);

  // Frame pointers of all kinds: none of them causes a fault.
  void* const wild = make_code(without_frame_pointer, sizeof without_frame_pointer);
  auto* const call = reinterpret_cast<void (*)(void (*)(), std::uintptr_t)>(wild);
  void* const nothing = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  for (std::uintptr_t pointer :
       {std::uintptr_t{0}, std::uintptr_t{1}, std::uintptr_t{8}, here, here + 1, here - 4096,
        here + 65536, here + (1 << 19), reinterpret_cast<std::uintptr_t>(nothing),
        ~std::uintptr_t{7}, std::uintptr_t{1} << 63, reinterpret_cast<std::uintptr_t>(code)})
    call(look_only, pointer);
  for (std::uintptr_t distance = 0; distance < (1 << 20); distance += 4096 - 8)
    call(look_only, here + distance);
  munmap(wild, 4096);
  munmap(nothing, 4096);
}
#endif

}  // namespace

int main(int count, char** arguments) {
  compare_several();
  report_stacks("early start");
  run_kernels();
  report_stacks("one thread");
#ifdef TS_HAS_RUST
  run_rust_kernels();
  report_stacks("Rust");
#endif
  threads();
  report_stacks("threads");
  signals();
  report_stacks("signal handlers");
  interruptions_anywhere();
  // Not of samples, since handlers must not call malloc where they interrupt it. Stubs of static
  // programs have no tables, nor have linkage tables of other processors.
#if defined(__x86_64__)
  report_stacks_with("interruptions", 90);
#else
  report_stacks_with("interruptions", 30);
#endif
  contexts();
  report_stacks("coroutines");
  vforks();
  report_stacks("children of vfork");
  forks();
  report_stacks("around forks");
  if (count == 3) {
    plugins(arguments + 1);
    report_stacks("libraries that go");
  }
#if defined(__x86_64__)
  made_code();
  report_stacks("code without tables");
#endif
  if (count == 3) {
    more_modules_than_records(arguments + 1);
    report_stacks("libraries beyond the table");
  }
  atexit(compare_several);
  return 0;
}
