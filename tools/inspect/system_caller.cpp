// See system_caller.h. After a thread's last call, the kernel must find it in signal delivery, as
// it was found: only there does it restart the interrupted wait. So the thread is interrupted once
// more before it gets its registers back.
#include "inspect/system_caller.h"

#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <initializer_list>

namespace ts {

#if defined(__x86_64__)

namespace {

constexpr unsigned char instruction_bytes[] = {0x0f, 0x05};  // syscall
constexpr std::size_t instruction_length = sizeof instruction_bytes;
constexpr unsigned long long code_segment = 0x33;  // of 64 bits
constexpr int system_call_stop = SIGTRAP | 0x80;   // with PTRACE_O_TRACESYSGOOD

bool is_instruction(const Process& process, std::uintptr_t address) {
  unsigned char bytes[instruction_length];
  return process.read(address, bytes, sizeof bytes) &&
         std::memcmp(bytes, instruction_bytes, sizeof bytes) == 0;
}

// A syscall instruction in the process's code; 0 if there is none.
std::uintptr_t find_instruction(const Process& process) {
  constexpr std::size_t piece = 4096;
  unsigned char bytes[piece];
  for (const Mapping& mapping : process) {
    if (!mapping.is_code) continue;
    for (std::uintptr_t at = mapping.range.begin; at < mapping.range.end; at += piece) {
      if (!process.read(at, bytes, piece)) break;
      const void* const found = memmem(bytes, piece, instruction_bytes, instruction_length);
      if (found != nullptr)
        return at + static_cast<std::size_t>(static_cast<const unsigned char*>(found) - bytes);
    }
  }
  return 0;
}

// Whether the thread may be within a restartable sequence, which the kernel would then lose.
bool is_in_sequence(const Process& process, pid_t thread) {
  struct {
    std::uint64_t address;
    std::uint32_t bytes, signature, flags, padding;
  } sequences{};
  constexpr int get_rseq_configuration = 0x420f;  // Linux 5.13; older headers do not know it
  constexpr std::size_t place_of_pointer = 8;     // in struct rseq
  std::uint64_t current = 0;
  if (ptrace(static_cast<__ptrace_request>(get_rseq_configuration), thread, sizeof sequences,
             &sequences) <= 0 ||
      sequences.address == 0)
    return false;
  return !process.read(sequences.address + place_of_pointer, current) || current != 0;
}

}  // namespace

void resume_wait(pid_t thread) {
  constexpr long epoll_pwait2 = 441;  // which older headers do not know
  constexpr long io_uring_enter = 426;
  // From accept on, only for sockets with a timeout (SO_RCVTIMEO, SO_SNDTIMEO).
  constexpr long waits[] = {
      SYS_epoll_wait,      SYS_epoll_pwait, epoll_pwait2,     SYS_semop,         SYS_semtimedop,
      SYS_rt_sigtimedwait, io_uring_enter,  SYS_io_getevents, SYS_io_pgetevents, SYS_accept,
      SYS_accept4,         SYS_connect,     SYS_recvfrom,     SYS_recvmsg,       SYS_recvmmsg,
      SYS_sendto,          SYS_sendmsg,     SYS_sendmmsg,     SYS_read,          SYS_readv,
      SYS_write,           SYS_writev,      SYS_sendfile,     SYS_splice};
  constexpr long long restart_without_handler = 514;  // the kernel's ERESTARTNOHAND
  user_regs_struct registers{};
  if (ptrace(PTRACE_GETREGS, thread, nullptr, &registers) != 0 ||
      static_cast<long long>(registers.rax) != -EINTR)
    return;
  for (const long wait : waits) {
    if (static_cast<long long>(registers.orig_rax) != wait) continue;
    registers.rax = static_cast<unsigned long long>(-restart_without_handler);
    ptrace(PTRACE_SETREGS, thread, nullptr, &registers);
  }
}

bool SystemCaller::is_possible() { return true; }

bool SystemCaller::choose(const Process& process, pid_t thread, bool waits_in_kernel) {
  if (ptrace(PTRACE_GETREGS, thread, nullptr, &former_) != 0 || former_.cs != code_segment)
    return false;
  const bool is_in_kernel = static_cast<long long>(former_.orig_rax) >= 0;
  if (is_in_kernel != waits_in_kernel) return false;
  instruction_ = former_.rip - instruction_length;
  if (!is_in_kernel && is_in_sequence(process, thread)) return false;
  if (!is_in_kernel || !is_instruction(process, instruction_))
    instruction_ = find_instruction(process);
  if (instruction_ == 0) return false;
  constexpr std::uint64_t all = ~std::uint64_t{0};
  if (ptrace(PTRACE_GETSIGMASK, thread, sizeof former_mask_, &former_mask_) != 0 ||
      ptrace(PTRACE_SETSIGMASK, thread, sizeof all, &all) != 0)
    return false;
  ptrace(PTRACE_SETOPTIONS, thread, nullptr, PTRACE_O_TRACESYSGOOD);
  thread_ = thread;
  return true;
}

// Prefers threads that wait in the kernel, if none is in a restartable sequence.
bool SystemCaller::begin(const Process& process, const StoppedThreads& threads) {
  is_running_ = false;
  for (const bool waits_in_kernel : {true, false}) {
    for (const StoppedThreads::Thread& thread : threads) {
      if (thread.may_call && choose(process, thread.id, waits_in_kernel)) return true;
    }
  }
  return false;
}

// Runs it to its next stop of that kind. All signals but SIGSTOP are blocked: the thread takes that
// one, which makes the process a stopped one, and continues as if it were not until it is released.
template <class IsStop>
bool SystemCaller::resume_to(__ptrace_request request, IsStop is_stop) const {
  for (int signal = 0;;) {
    int status = 0;
    if (ptrace(request, thread_, nullptr, signal) != 0) return false;
    if (waitpid(thread_, &status, __WALL) != thread_ || !WIFSTOPPED(status)) return false;
    if (is_stop(status)) return true;
    signal = event_of(status) == 0 && WSTOPSIG(status) == SIGSTOP ? SIGSTOP : 0;
  }
}

// Runs it to its next entry into a system call, or exit from one.
bool SystemCaller::resume_to_system_call() const {
  return resume_to(PTRACE_SYSCALL, [](int status) { return WSTOPSIG(status) == system_call_stop; });
}

int SystemCaller::call(long number, std::uintptr_t first, std::uintptr_t second,
                       std::uintptr_t third) {
  user_regs_struct registers = former_;
  registers.rip = instruction_;
  registers.rax = static_cast<unsigned long long>(number);
  registers.orig_rax = ~0ULL;  // it is not in a system call
  registers.rdi = first;
  registers.rsi = second;
  registers.rdx = third;
  is_running_ = true;
  if (ptrace(PTRACE_SETREGS, thread_, nullptr, &registers) != 0 || !resume_to_system_call() ||
      !resume_to_system_call() || ptrace(PTRACE_GETREGS, thread_, nullptr, &registers) != 0)
    return ESRCH;
  constexpr unsigned long long errors = 4096;
  const unsigned long long error = -registers.rax;
  return error < errors ? static_cast<int>(error) : ESRCH;  // the call ended the thread
}

void SystemCaller::end() {
  if (is_running_) {
    ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr);
    resume_to(PTRACE_CONT, [](int status) { return event_of(status) == PTRACE_EVENT_STOP; });
  }
  ptrace(PTRACE_SETREGS, thread_, nullptr, &former_);
  ptrace(PTRACE_SETSIGMASK, thread_, sizeof former_mask_, &former_mask_);
}

#else

void resume_wait(pid_t) {}

bool SystemCaller::is_possible() { return false; }
bool SystemCaller::begin(const Process&, const StoppedThreads&) { return false; }
int SystemCaller::call(long, std::uintptr_t, std::uintptr_t, std::uintptr_t) { return ENOSYS; }
void SystemCaller::end() {}

#endif

}  // namespace ts
