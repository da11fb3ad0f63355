// The seccomp filter; see filter.h.
#include "syscalls/filter.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace ts {
namespace {

struct Watched {
  const char* name;
  std::uint32_t number;
};

constexpr Watched watched[call_count] = {{"futex", __NR_futex},
                                         {"mmap", __NR_mmap},
                                         {"munmap", __NR_munmap},
                                         {"mremap", __NR_mremap},
                                         {"brk", __NR_brk},
                                         {"madvise", __NR_madvise},
                                         {"sched_yield", __NR_sched_yield}};

#if defined(__x86_64__)
constexpr std::uint32_t own_architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t own_architecture = AUDIT_ARCH_AARCH64;
#else
#error "tell the filter what <linux/audit.h> calls this architecture"
#endif

constexpr sock_filter load(std::uint32_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset);
}

constexpr sock_filter give(std::uint32_t verdict) { return BPF_STMT(BPF_RET | BPF_K, verdict); }

constexpr sock_filter jump_unless_equal(std::uint32_t value, std::uint8_t forward) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, forward);
}

}  // namespace

const char* name_of(Call call) { return watched[static_cast<std::size_t>(call)].name; }

Call call_of(std::uint64_t number) {
  const auto* const found =
      std::find_if(std::begin(watched), std::end(watched),
                   [number](const Watched& each) { return each.number == number; });
  return static_cast<Call>(found - std::begin(watched));
}

int install_filter() {
  // Architecture, then each call: equal, stop; else on to the next.
  sock_filter program[3 + 2 * call_count + 1];
  std::size_t length = 0;
  program[length++] = load(offsetof(seccomp_data, arch));
  program[length++] = jump_unless_equal(own_architecture, 1 + 2 * call_count);
  program[length++] = load(offsetof(seccomp_data, nr));
  for (const Watched& each : watched) {
    program[length++] = jump_unless_equal(each.number, 1);
    program[length++] = give(SECCOMP_RET_TRACE | filter_mark);
  }
  program[length++] = give(SECCOMP_RET_ALLOW);
  const sock_fprog code{.len = static_cast<unsigned short>(length), .filter = program};
  // The kernel wants this from users other than root: no set-user-id program can be fooled by a
  // filter when none gets its rights. Tracing takes them away in any case.
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  return syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &code) == 0 ? 0 : errno;
}

}  // namespace ts
