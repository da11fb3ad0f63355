// System call filters, for C and C++: this processor's architecture, and filters that block some
// calls.
#pragma once

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OWN_ARCHITECTURE AUDIT_ARCH_X86_64
#define SYSTEM_CALL_INSTRUCTION "syscall"
#elif defined(__aarch64__)
#define OWN_ARCHITECTURE AUDIT_ARCH_AARCH64
#define SYSTEM_CALL_INSTRUCTION "svc #0"
#elif defined(__riscv)
#define OWN_ARCHITECTURE AUDIT_ARCH_RISCV64
#define SYSTEM_CALL_INSTRUCTION "ecall"
#else
#error "how does a program make system calls on this processor?"
#endif

// From now on, for this thread and threads it starts, or with SECCOMP_FILTER_FLAG_TSYNC for all.
// Returns 0, or an error number: a system or an emulator may have no filters.
__attribute__((unused)) static int set_filter(struct sock_filter* steps, unsigned short length,
                                              unsigned long flags) {
  const struct sock_fprog program = {length, steps};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0 ? 0 : errno;
}

// From now on two system calls, which may be the same, have this outcome. Returns 0, or an error
// number.
__attribute__((unused)) static int stop_calls(int one, int other, unsigned outcome) {
  struct sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)one, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)other, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, outcome),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  return set_filter(steps, sizeof steps / sizeof *steps, 0);
}
