// syscalls: runs one program under ptrace and reports, as one line of JSON, the system calls by which
// an allocator waits and gets memory.
//
// Why it exists: futex calls, their errors, and the calls that move memory between program and
// kernel explain most differences between allocators. No library can count them without changing
// them. What it refuses to do: time anything else than the waiting of these calls, or judge. The
// program runs more slowly than alone, so its times say nothing. lab/native/README.md describes
// every field of the line.
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "launch/options.h"
#include "launch/report.h"
#include "syscalls/tracer.h"

namespace ts {

const char* tool_name() { return "syscalls"; }

namespace {

constexpr int exit_refused = 126;

// Too large for the stack of a small program, and needed from start to end.
Options options;
StartedChild child;

constexpr ToolHelp help = {
    .purpose =
        R"(Runs COMMAND and all that it starts under ptrace, and writes one line of JSON with the numbers of
its calls of futex, mmap, munmap, mremap, brk, madvise and sched_yield.
)",
    .own_options = "",
    .exit_status =
        R"(Exit status: 0 a line was written, whatever COMMAND did; 1 wrong usage; 125 syscalls itself failed;
126 the system does not permit tracing.
)"};

[[noreturn]] void fail_refused(const char* what, int error_number) {
  dprintf(
      STDERR_FILENO,
      "syscalls: the system does not let it %s: %s.\n"
      "  In a container, start that with --cap-add=SYS_PTRACE (or, if seccomp is refused too,\n"
      "  --security-opt seccomp=unconfined). On a host, kernel.yama.ptrace_scope must be 0 or 1\n"
      "  (sysctl). Under strace or a debugger that follows children it cannot work.\n",
      what, strerrordesc_np(error_number));
  _exit(exit_refused);
}

void write_report(int descriptor, const Tracer& tracer) {
  JsonLine line{descriptor};
  begin_report(line, "tsmalloc-syscalls/1", options, child, tracer.end());
  line.add("threads", tracer.threads());
  line.add("processes", tracer.processes());
  tracer.counts().write(line);
  finish_report(line);
}

int count_calls(int argument_count, char** arguments) {
  fill_standard_descriptors();
  parse_options(argument_count, arguments, help, {}, options);
  ProcessTree::require_kernel_support();
  const int output = open_output(options);
  ChildSetup setup;
  setup.last_step = install_filter;
  setup.last_step_name = "filter its system calls (seccomp)";
  const bool is_ready = open_redirections(options, setup, child);
  setup.original_signal_mask = block_awaited_signals(Notice::ends_and_stops);
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    fail_internal("cannot become a child subreaper", errno);
  }
  static Tracer tracer{options, setup, child};
  if (is_ready) {
    const int error_number = tracer.run();
    if (error_number != 0) fail_refused("trace its own child (ptrace)", error_number);
  }
  if (child.error_number != 0 && child.failed_step == StartStep::last_step) {
    fail_refused(setup.last_step_name, child.error_number);
  }
  if (tracer.untraced() > 0) {
    dprintf(STDERR_FILENO,
            "syscalls: %lld threads were too many at once; their calls are missing.\n",
            static_cast<long long>(tracer.untraced()));
  }
  write_report(output, tracer);
  return 0;
}

}  // namespace
}  // namespace ts

int main(int argument_count, char** arguments) {
  return ts::count_calls(argument_count, arguments);
}
