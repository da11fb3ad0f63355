// A program whose samples a tracer sees through OpenTelemetry's probes, and that tracer, a minimal
// debugger. Without arguments it is the program; with a library and the addresses of its two probes
// and their semaphores within it, the tracer of a copy of itself.
//
// The tracer prints a line for each probe hit, `alloc POINTER BYTES WEIGHTED` or `free POINTER`,
// and `phase NUMBER` when the program begins one.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { warm_up = 100000, measured = 400000, kept = measured / 4, bytes = 1000 };

static void churn(int rounds) {
  for (int i = 0; i < rounds; ++i) {
    // In bursts, so that bins are refilled from slabs.
    void* volatile blocks[64];
    for (int k = 0; k < 64; ++k) blocks[k] = malloc(bytes);
    for (int k = 0; k < 64; ++k) free(blocks[k]);
  }
}

static int be_program(void) {
  static void* keeps[kept];
  raise(SIGUSR1);  // phase 1: a tracer attaches, and the program notices
  churn(warm_up / 64);
  raise(SIGUSR1);  // phase 2: everything is counted
  for (int i = 0; i < measured; ++i) {
    void* const p = malloc(bytes);
    if (i % 4 == 0) {
      keeps[i / 4] = p;
    } else {
      free(p);
    }
  }
  raise(SIGUSR1);  // phase 3: what was kept is freed
  for (int i = 0; i < kept; ++i) free(keeps[i]);
  raise(SIGUSR1);  // phase 4: the tracer has detached, and the program notices
  churn(warm_up / 64);
  raise(SIGUSR1);  // phase 5: nothing is sampled
  churn(warm_up / 64);
  return 0;
}

static uintptr_t base_of(pid_t pid, const char* library) {
  char name[64];
  snprintf(name, sizeof name, "/proc/%d/maps", (int)pid);
  FILE* const maps = fopen(name, "r");
  char line[4096];
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    if (strstr(line, library) == NULL) continue;
    fclose(maps);
    return strtoul(line, NULL, 16);
  }
  fprintf(stderr, "no such library in the process: %s\n", library);
  exit(1);
}

// Adds to the lowest `bits` bits of a word of the process.
static void add(pid_t pid, uintptr_t at, unsigned bits, long more) {
  const long mask = (1L << bits) - 1;
  const long word = ptrace(PTRACE_PEEKDATA, pid, at, 0);
  if (ptrace(PTRACE_POKEDATA, pid, at, (word & ~mask) | ((word + more) & mask)) != 0) {
    perror("cannot write to the process");
    exit(1);
  }
}

static int be_tracer(char** arguments) {
  const pid_t pid = fork();
  if (pid == 0) {
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    setenv("LD_PRELOAD", arguments[1], 1);
    execl("/proc/self/exe", arguments[0], (char*)NULL);
    _exit(127);
  }
  uintptr_t places[4];
  int phase = 0;
  for (int status; waitpid(pid, &status, 0) == pid && WIFSTOPPED(status);) {
    const int signal_number = WSTOPSIG(status);
    if (signal_number == SIGUSR1) {
      printf("phase %d\n", ++phase);
      if (phase == 1) {
        const uintptr_t base = base_of(pid, arguments[1]);
        for (int i = 0; i < 4; ++i) places[i] = base + strtoul(arguments[2 + i], NULL, 0);
      }
      // A probe's nop is one byte, 0x90, like the trap, 0xcc.
      for (int i = 0; i < 2 && phase == 1; ++i) add(pid, places[i], 8, 0xcc - 0x90);
      for (int i = 2; i < 4 && (phase == 1 || phase == 4); ++i)
        add(pid, places[i], 16, phase == 1 ? 1 : -1);
    } else if (signal_number == SIGTRAP && phase != 0) {
      struct user_regs_struct registers;
      ptrace(PTRACE_GETREGS, pid, 0, &registers);
      if (registers.rip == places[0] + 1) {
        printf("alloc %#llx %llu %llu\n", registers.rdi, registers.rsi, registers.rdx);
      } else if (registers.rip == places[1] + 1) {
        printf("free %#llx\n", registers.rdi);
      } else {
        fprintf(stderr, "a trap at %#llx, where no probe is\n", registers.rip);
        return 1;
      }
    } else if (signal_number != SIGTRAP) {
      fprintf(stderr, "signal %d\n", signal_number);
      kill(pid, SIGKILL);
      return 1;
    }
    ptrace(PTRACE_CONT, pid, 0, 0);
  }
  return phase == 5 ? 0 : 1;
}

int main(int count, char** arguments) { return count == 1 ? be_program() : be_tracer(arguments); }
