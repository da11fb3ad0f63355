// Functions of libc that only a report or a sampled block needs are looked up by name. Each
// reference would be work for the dynamic linker at every start.
#include "os/bad_access.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/cancellation.h"
#include "os/os.h"

namespace ts::os {
namespace {

using Look = void (*)(const void* address);
constinit Look look_first = nullptr;
constinit struct sigaction before = {};

void at_bad_access(int number, siginfo_t* info, void* context) {
  look_first(info->si_addr);
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(number, info, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
    return before.sa_handler(number);
  // The same access again, on return, now ends the process as it would have.
  if (const auto set = find_function<decltype(::sigaction)>("sigaction"))
    set(number, &before, nullptr);
}

}  // namespace

bool withdraw(void* begin, std::size_t bytes) noexcept {
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  return ::mmap(begin, bytes, PROT_NONE, flags, -1, 0) == begin;
}

void call_at_bad_access(void (*look)(const void*)) noexcept {
  const auto set = find_function<decltype(::sigaction)>("sigaction");
  if (set == nullptr) return;
  look_first = look;
  struct sigaction action = {};
  action.sa_sigaction = at_bad_access;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  set(SIGSEGV, &action, &before);
}

void take_call_stack(CallStack& stack) noexcept {
  const CancellationDisabled completes_it;
  // libc's: its first call loads the unwinder of gcc.
  const auto backtrace = find_function<int(void**, int)>("backtrace");
  stack.depth = backtrace != nullptr ? backtrace(stack.frames, most_frames) : 0;
}

void write_call_stack(const CallStack& stack) noexcept {
  const CancellationDisabled completes_it;
  const auto write = find_function<void(void* const*, int, int)>("backtrace_symbols_fd");
  if (write != nullptr && stack.depth > 0) write(stack.frames, stack.depth, STDERR_FILENO);
}

}  // namespace ts::os
