// Redirects the system calls of one object to a function of the test, even those made by an
// instruction rather than a replaceable function: seccomp turns each into a signal, whose handler
// supplies the answer. For C and C++, and for one file of a program. The filter also applies to
// threads that the calling one starts from then on, and to programs that they execute, which it
// would kill.
#pragma once

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#include "programs/support/seccomp.h"

typedef struct CaughtCall {
  long number;
  long argument[6];
  uintptr_t caller;  // the address after the instruction
} CaughtCall;

// Answers like the kernel: the result, or a negated error number.
typedef long (*ServeCall)(const CaughtCall* call);

// The kernel itself, by an instruction that is never caught.
extern const char behind_own_call[] __attribute__((visibility("hidden")));
__attribute__((noinline, noclone, unused)) static long ask_system(const CaughtCall* call) {
  const long* const a = call->argument;
#if defined(__x86_64__)
  register long r10 __asm__("r10") = a[3];
  register long r8 __asm__("r8") = a[4];
  register long r9 __asm__("r9") = a[5];
  long result;
  __asm__ volatile(SYSTEM_CALL_INSTRUCTION "\nbehind_own_call:"
                   : "=a"(result)
                   : "a"(call->number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
#else
#if defined(__aarch64__)
#define ARGUMENT(n) __asm__("x" #n)
  register long number __asm__("x8") = call->number;
#else
#define ARGUMENT(n) __asm__("a" #n)
  register long number __asm__("a7") = call->number;
#endif
  register long first ARGUMENT(0) = a[0];
  register long second ARGUMENT(1) = a[1];
  register long third ARGUMENT(2) = a[2];
  register long fourth ARGUMENT(3) = a[3];
  register long fifth ARGUMENT(4) = a[4];
  register long sixth ARGUMENT(5) = a[5];
#undef ARGUMENT
  __asm__ volatile(SYSTEM_CALL_INSTRUCTION "\nbehind_own_call:"
                   : "+r"(first)
                   : "r"(second), "r"(third), "r"(fourth), "r"(fifth), "r"(sixth), "r"(number)
                   : "memory");
  return first;
#endif
}

// ---- the signal ----

static ServeCall serve_caught_call;

static inline void take_caught_call(const ucontext_t* context, CaughtCall* call) {
#if defined(__x86_64__)
  const greg_t* const at = context->uc_mcontext.gregs;
  const long arguments[] = {at[REG_RDI], at[REG_RSI], at[REG_RDX],
                            at[REG_R10], at[REG_R8],  at[REG_R9]};
  memcpy(call->argument, arguments, sizeof arguments);
#elif defined(__aarch64__)
  memcpy(call->argument, context->uc_mcontext.regs, sizeof call->argument);
#else
  memcpy(call->argument, &context->uc_mcontext.__gregs[REG_A0], sizeof call->argument);
#endif
}

static inline void answer_caught_call(ucontext_t* context, long result) {
#if defined(__x86_64__)
  context->uc_mcontext.gregs[REG_RAX] = result;
#elif defined(__aarch64__)
  context->uc_mcontext.regs[0] = (unsigned long long)result;
#else
  context->uc_mcontext.__gregs[REG_A0] = (unsigned long)result;
#endif
}

// The thread's mask must not contain the signal: otherwise a caught call would kill the process.
static inline long change_mask(const long* argument, ucontext_t* context) {
  uint64_t mask;
  memcpy(&mask, &context->uc_sigmask, sizeof mask);
  if (argument[2] != 0) memcpy((void*)argument[2], &mask, sizeof mask);
  if (argument[1] == 0) return 0;
  uint64_t wanted;
  memcpy(&wanted, (const void*)argument[1], sizeof wanted);
  if (argument[0] == SIG_BLOCK) wanted |= mask;
  if (argument[0] == SIG_UNBLOCK) wanted = mask & ~wanted;
  wanted &= ~(UINT64_C(1) << (SIGSYS - 1));
  memcpy(&context->uc_sigmask, &wanted, sizeof wanted);
  return 0;
}

static void at_caught_call(int signal, siginfo_t* info, void* context) {
  (void)signal;
  const int kept = errno;
  ucontext_t* const state = (ucontext_t*)context;
  CaughtCall call;
  call.number = info->si_syscall;
  call.caller = (uintptr_t)info->si_call_addr;
  take_caught_call(state, &call);
  answer_caught_call(state, call.number == SYS_rt_sigprocmask ? change_mask(call.argument, state)
                                                              : serve_caught_call(&call));
  errno = kept;
}

// ---- the filter ----

typedef struct CodeRange {
  uintptr_t within;  // an address in it
  uintptr_t begin, end;
} CodeRange;

static int find_code_range(struct dl_phdr_info* object, size_t size, void* found) {
  (void)size;
  CodeRange* const range = (CodeRange*)found;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* const part = &object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + part->p_vaddr;
    if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0) continue;
    if (range->within < begin || range->within - begin >= part->p_memsz) continue;
    range->begin = begin;
    range->end = begin + part->p_memsz;
    return 1;
  }
  return 0;
}

enum { most_caught_calls = 20 };

// From now on, these calls by the code around `within` go to `serve`. Returns 0, or an error
// number: a system or an emulator may lack such filters.
__attribute__((unused)) static int catch_calls(const void* within, const int* numbers, size_t count,
                                               ServeCall serve) {
  CodeRange range = {(uintptr_t)within, 0, 0};
  if (count > most_caught_calls || !dl_iterate_phdr(find_code_range, &range)) return EINVAL;
  serve_caught_call = serve;
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = at_caught_call;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  if (sigaction(SIGSYS, &action, NULL) != 0) return errno;

  enum { load = BPF_LD | BPF_W | BPF_ABS, at_least = BPF_JMP | BPF_JGE | BPF_K };
  enum { greater = BPF_JMP | BPF_JGT | BPF_K, equal = BPF_JMP | BPF_JEQ | BPF_K };
  enum { result = BPF_RET | BPF_K };
  const uint32_t low = offsetof(struct seccomp_data, instruction_pointer);
  const uint32_t high = low + 4;
  const uintptr_t own = (uintptr_t)behind_own_call;
#define STEP(code, value, if_true, if_false) \
  { code, if_true, if_false, (uint32_t)(value) }
  const struct sock_filter where[] = {
      STEP(load, high, 0, 0),
      STEP(greater, range.begin >> 32, 3, 0),
      STEP(equal, range.begin >> 32, 0, 12),
      STEP(load, low, 0, 0),
      STEP(at_least, range.begin, 0, 10),
      STEP(load, high, 0, 0),
      STEP(greater, range.end >> 32, 8, 0),
      STEP(equal, range.end >> 32, 0, 2),
      STEP(load, low, 0, 0),
      STEP(at_least, range.end, 5, 0),
      STEP(load, high, 0, 0),
      STEP(equal, own >> 32, 0, 2),
      STEP(load, low, 0, 0),
      STEP(equal, own, 1, 0),
      STEP(result, SECCOMP_RET_TRAP, 0, 0),
      STEP(result, SECCOMP_RET_ALLOW, 0, 0),
  };
  struct sock_filter steps[most_caught_calls + 20];
  unsigned short length = 0;
  const struct sock_filter begin[] = {
      STEP(load, offsetof(struct seccomp_data, arch), 0, 0),
      STEP(equal, OWN_ARCHITECTURE, 1, 0),
      STEP(result, SECCOMP_RET_ALLOW, 0, 0),
      STEP(load, offsetof(struct seccomp_data, nr), 0, 0),
      STEP(equal, SYS_rt_sigprocmask, (unsigned char)(count + 1), 0),
  };
  memcpy(steps, begin, sizeof begin);
  length = sizeof begin / sizeof *begin;
  for (size_t i = 0; i < count; ++i) {
    const struct sock_filter step = STEP(equal, numbers[i], (unsigned char)(count - i), 0);
    steps[length++] = step;
  }
  const struct sock_filter no_such_number = STEP(result, SECCOMP_RET_ALLOW, 0, 0);
  steps[length++] = no_such_number;
#undef STEP
  memcpy(steps + length, where, sizeof where);
  length += sizeof where / sizeof *where;
  return set_filter(steps, length, 0);
}
