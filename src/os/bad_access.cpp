#include "os/bad_access.h"

#include <signal.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>

#include "os/os.h"
#include "os/system_call.h"

namespace ts::os {
namespace {

using Look = void (*)(const void* address);
constinit Look look_first = nullptr;
constinit struct sigaction before = {};

// Resends the signal to the calling thread, as it came or, failing that, as a plain one.
void send_again(int number, siginfo_t* info) noexcept {
  const long process = call(SYS_getpid);
  const long thread = call(SYS_gettid);
  if (call(SYS_rt_tgsigqueueinfo, process, thread, number, info) != 0)
    call(SYS_tgkill, process, thread, number);
}

// Does what the kernel does before it calls a handler. The signals are unblocked when the handler
// returns.
void begin_handler(int number, const struct sigaction& action) noexcept {
  if ((action.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) before = {};
  std::uint64_t blocked = 0;  // the kernel's signal set
  std::memcpy(&blocked, &action.sa_mask, sizeof blocked);
  if ((action.sa_flags & SA_NODEFER) == 0) blocked |= std::uint64_t{1} << (number - 1);
  call(SYS_rt_sigprocmask, SIG_BLOCK, &blocked, nullptr, sizeof blocked);
}

void at_bad_access(int number, siginfo_t* info, void* context) {
  // Sent by raise(), kill() and the like: there was no access.
  const bool is_sent = info->si_code <= 0;
  if (!is_sent) look_first(info->si_addr);
  const struct sigaction action = before;
  const bool has_info = (action.sa_flags & SA_SIGINFO) != 0;
  if (has_info || (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN)) {
    begin_handler(number, action);
    return has_info ? action.sa_sigaction(number, info, context) : action.sa_handler(number);
  }
  if (is_sent && action.sa_handler == SIG_IGN) return;
  // On return the access is repeated, and now ends the process as it would have.
  ::sigaction(number, &action, nullptr);
  if (is_sent) send_again(number, info);
}

}  // namespace

bool protect(void* begin, std::size_t bytes) noexcept {
  discard(begin, bytes);  // seen by interposers
  return decommit(begin, bytes);
}

bool make_inaccessible(void* begin, std::size_t bytes) noexcept {
  return call(SYS_mprotect, begin, bytes, PROT_NONE) == 0;
}

// Not looked up by name: the dynamic linker takes a lock for that, which a thread that waits for
// this one may hold.
void call_at_bad_access(void (*look)(const void*)) noexcept {
  look_first = look;
  struct sigaction action = {};
  action.sa_sigaction = at_bad_access;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  ::sigaction(SIGSEGV, &action, &before);
}

}  // namespace ts::os
