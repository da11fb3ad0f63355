// record: runs a program, and writes every event of its heap into a trace.
//
// libtsmalloc-record.so, preloaded into the program and all that it starts, only leaves events in
// memory; this program orders and writes them as they come. It does not use the recorded heap,
// and the recording continues however the program ends. docs/formats/trace.md describes the trace
// and the JSON line.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include "launch/child.h"
#include "launch/options.h"
#include "launch/report.h"
#include "launch/tree_end.h"
#include "record/collector/clock.h"
#include "record/collector/ring_file.h"
#include "record/collector/session.h"
#include "record/collector/trace_sink.h"

namespace ts {

const char* tool_name() { return "record"; }

namespace record {
namespace {

constexpr std::size_t default_chunks = (std::size_t{32} << 20) / chunk_bytes;
constexpr std::size_t min_chunks = 4;

// The command line's values; large, and needed from start to end.
Options options;
StartedChild child;
const char* trace_path = nullptr;
const char* shim_path = nullptr;
bool is_forced = false;
std::size_t ring_chunks = default_chunks;

constexpr ToolHelp help = {
    .purpose =
        R"(Runs COMMAND, and records its allocator calls and those of all programs it starts in a trace. Writes
one line of JSON.
)",
    .own_options =
        R"(  -o, --trace FILE   the trace
  -f, --force        overwrite it
  --ring-chunks N    size of the event ring buffer in chunks of 4 KiB, at least one per thread
                     (default 8192, at most 65536)
  --shim FILE        the recording library, as an absolute path without spaces
                     (default: ../lib/libtsmalloc-record.so, relative to this program)
)",
    .exit_status =
        R"(Exit status: 0 a line was written, whatever COMMAND did; 1 usage error; 125 record itself failed.
)"};

constexpr Option own_options[] = {
    {"trace", [](const char* argument) { trace_path = argument; }, false, 'o'},
    {"force", [](const char*) { is_forced = true; }, true, 'f'},
    {"ring-chunks",
     [](const char* argument) {
       ring_chunks =
           std::max(static_cast<std::size_t>(parse_whole("--ring-chunks", argument, max_chunks)),
                    min_chunks);
     }},
    {"shim", [](const char* argument) { shim_path = argument; }}};

// Checks before anything runs that the trace can be written, without changing an existing file.
// Returns whether the file is new.
bool try_trace_file() {
  if (trace_path == nullptr) fail_usage({"no trace file given; name one with -o FILE."});
  const int flags = O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  int file = open(trace_path, flags | O_CREAT | O_EXCL, 0666);
  const bool is_new = file >= 0;
  if (!is_new && errno == EEXIST) {
    if (!is_forced) {
      fail_usage({"'", trace_path,
                  "' already exists; overwrite it with -f, or name another file with -o."});
    }
    file = open(trace_path, flags);
  }
  if (file < 0) {
    fail_usage({"cannot write '", trace_path, "': ", strerrordesc_np(errno),
                "; name another file with -o."});
  }
  close(file);
  return is_new;
}

// The library is next to us, where the build or the installation puts it, or where an option says.
void preload_shim() {
  char program[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length < 0) fail_internal("cannot find its own location", errno);
  program[length] = '\0';
  *std::strrchr(program, '/') = '\0';
  if (options.preload_count == max_preloads) fail_usage({"too many libraries to preload."});
  std::copy_backward(options.preloads, options.preloads + options.preload_count,
                     options.preloads + options.preload_count + 1);
  ++options.preload_count;
  Preload& shim = options.preloads[0];
  char path[2 * PATH_MAX];
  format(path, sizeof path, "%s/../lib/libtsmalloc-record.so", program);
  const char* const file = shim_path != nullptr ? shim_path : path;
  if (realpath(file, shim.resolved) == nullptr) {
    fail_usage({"cannot find '", file, "': ", strerrordesc_np(errno), "; reinstall tsmalloc."});
  }
  // A link is not resolved: it may be there for its name.
  format(shim.path, sizeof shim.path, "%s", shim_path != nullptr ? shim_path : shim.resolved);
}

// For the programs, which inherit it: the ring's name, and a setting that keeps the allocator from
// starting a thread of its own, unless the user wants one.
void set_environment(const RingFile& file) {
  setenv(ring_variable, file.path().c_str(), 1);
  setenv("TSMALLOC_BACKGROUND", "off", 0);
}

// For us only, so after the program was started: one descriptor for each process, and errors
// instead of signals if a file is full or its reader gone.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  static_cast<void>(signal(SIGPIPE, SIG_IGN));
  static_cast<void>(signal(SIGXFSZ, SIG_IGN));
}

int run(int argument_count, char** arguments) {
  fill_standard_descriptors();
  parse_options(argument_count, arguments, help, own_options, options);
  ProcessTree::require_kernel_support();
  preload_shim();
  const bool is_new = try_trace_file();
  const int output = open_output(options);
  Clock clock;
  RingFile file{ring_chunks, clock.kind()};
  set_environment(file);
  ChildSetup setup;
  const bool is_ready = open_redirections(options, setup, child);
  setup.original_signal_mask = block_awaited_signals();
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    fail_internal("cannot become a child subreaper", errno);
  }
  if (is_ready) start_child(options, setup, child);
  raise_file_limit();
  const bool is_started = child.error_number == 0;
  TraceSink sink;
  if (is_started) {
    sink.open(trace_path);
  } else if (is_new) {
    unlink(trace_path);
  }
  const auto session = std::make_unique<Session>(options, child, file, clock, sink);
  if (is_started) session->run();
  session->report(output, options, file.ring());
  return 0;
}

}  // namespace
}  // namespace record
}  // namespace ts

int main(int argument_count, char** arguments) {
  try {
    return ts::record::run(argument_count, arguments);
  } catch (const std::exception& error) {
    static_cast<void>(std::fprintf(stderr, "%s: %s\n", ts::tool_name(), error.what()));
    return ts::exit_internal;
  }
}
