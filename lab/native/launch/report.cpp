// Opening the output and the common fields; see report.h.
#include "launch/report.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace ts {

void fill_standard_descriptors() {
  int descriptor = 0;
  do {
    descriptor = open("/dev/null", O_RDWR);
  } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  if (descriptor > STDERR_FILENO) close(descriptor);
}

int open_output(const Options& options) {
  if (options.output == nullptr) return STDOUT_FILENO;
  const int descriptor = open(options.output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor >= 0) return descriptor;
  dprintf(STDERR_FILENO, "%s: cannot write %s: %s.\n  Name another file with --output.\n",
          tool_name(), options.output, strerrordesc_np(errno));
  _exit(exit_usage);
}

void begin_report(JsonLine& line, const char* schema, const Options& options,
                  const StartedChild& child, const TreeEnd& end) {
  line.begin_object();
  line.add_text("schema", schema);
  if (child.error_number == 0) {
    line.add_null("spawn_error");
  } else {
    line.begin_object("spawn_error");
    line.add("errno", child.error_number);
    line.add_text("message", child.message);
    line.end_object();
  }
  line.add_if(options.timeout_ns != 0, "timeout_ns", options.timeout_ns);
  const int status = end.wait_status();
  line.add_if(end.root_ended() && WIFEXITED(status), "exit_code", WEXITSTATUS(status));
  line.add_if(end.root_ended() && WIFSIGNALED(status), "signal", WTERMSIG(status));
  line.add_bool("timed_out", end.timed_out());
  line.add_bool("interrupted", end.interrupted());
  line.add("left_behind", end.left_behind());
}

void finish_report(JsonLine& line) {
  line.end_object();
  // If the reader has gone, writing must fail, not kill us.
  static_cast<void>(signal(SIGPIPE, SIG_IGN));
  if (const int error_number = line.finish(); error_number != 0) {
    fail_internal("cannot write the report", error_number);
  }
}

}  // namespace ts
