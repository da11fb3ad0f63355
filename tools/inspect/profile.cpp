// `profile`: takes the heap profile of a running process, or of a program that it starts. Reading
// profiles is up to the lab.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "common/json_line.h"
#include "common/system.h"
#include "front/run.h"
#include "inspect/profile_image.h"
#include "inspect/program.h"
#include "inspect/remote_options.h"
#include "inspect/verbs.h"
#include "os/atomic_file.h"
#include "os/options.h"

namespace ts {
namespace {

constexpr char help_of_profile[] =
    "Usage: tsmalloc profile [--seconds N] [--interval BYTES] [--peak] [--output FILE | DIR/]\n"
    "                        " TSMALLOC_USAGE_OF_PROCESSES R"(
       tsmalloc profile [--interval BYTES] [--peak] [--output FILE] -- PROGRAM [ARGUMENT...]
       tsmalloc profile show | diff | leaks | flame | folded | symbolize FILE...

Take the heap profile of a running process, or of several at once, each into its own file. If a process
is already sampling, its profile is only read: it is not stopped, and no code is injected. Otherwise it
samples for N seconds, and the profile lacks blocks allocated earlier.

Examples:
  tsmalloc profile 4711
  tsmalloc profile --seconds 60 --output server.pb 4711
  tsmalloc profile -- ./server --selftest

  --seconds N       How long to sample, 10 by default.
  --keep            Keep sampling afterwards.
  --interval BYTES  About one sample per BYTES allocated, 512K by default.
  --peak            Blocks in use at the peak instead of those in use now.
  --output FILE     By default tsmalloc.PID.pb, or tsmalloc.PID.2.pb if that exists, and so on; with a
                    folder, files of these names in it. They contain no symbols: profile show and pprof
                    add them.
  --force           Overwrite FILE.
)" TSMALLOC_HELP_OF_PROCESSES R"(
PROGRAM runs under tsmalloc, and each of its processes writes a profile when it ends, even if it is killed
or crashes; with --output DIR/, these go to that folder. Signals are passed on to the program. It is
traced, as by a debugger. With the lab, the report follows; `profile run --help` lists its options.

Reading another process needs permission to ptrace it. Exit status: 1 usage error, or the file cannot be
written; 2 there is no profile of a process: no such process, no tsmalloc in it, another version of it,
nothing allocated yet, or permission denied. For PROGRAM, the exit status is its own.
)";

struct Settings {
  double seconds = 0;              // 0: not given
  const char* interval = nullptr;  // likewise
  const char* output = nullptr;
  bool is_peak = false;
  bool keeps = false;
  bool overwrites = false;
};

const char* interval_of(const Settings& settings) {
  return settings.interval != nullptr ? settings.interval : "on";
}

volatile sig_atomic_t was_interrupted = 0;

// Until the time is over, a signal such as Ctrl-C's ends it, or the process has ended.
void wait_for(double seconds, pid_t pid) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action = {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;  // by nohup
    action = {};
    action.sa_handler = [](int) { was_interrupted = 1; };
    ::sigaction(signal, &action, nullptr);
  }
  constexpr double step = 0.1;
  for (; seconds > 0 && was_interrupted == 0 && ::kill(pid, 0) == 0; seconds -= step) {
    const double now = seconds < step ? seconds : step;
    const timespec pause{0, static_cast<long>(now * 1e9)};
    ::nanosleep(&pause, nullptr);
  }
}

// The option PROFILE of the process, in `current_options`.
void set_profile(const CommandLine& line, const char* value) {
  if (change_option("PROFILE", value) == 0) return;
  line.fail_at(value, "not an interval: 1 to 1G bytes, with K, M, or G");
}

// Ends this process with a message unless `error` is 0.
void expect_no_error(int error, const char* path) {
  if (error != 0)
    fail(exit_usage, "%s: %s; choose another with --output FILE", path,
         os::describe_error(error).text);
}

bool is_folder(const char* path) {
  struct stat there = {};
  return ::stat(path, &there) == 0 && S_ISDIR(there.st_mode);
}

// Checks that the file named by --output can be written, without losing anything.
void check_output(const Settings& settings) {
  const char* const path = settings.output;
  expect_no_error(os::AtomicFile{path}.error(), path);
  if (!settings.overwrites && ::access(path, F_OK) == 0)
    fail(exit_usage, "%s exists: overwrite it with --force, or name another file", path);
}

void write_file(const ProfileImage& profile, Process& process, const EngineImage& image,
                engine::ProfileKind kind, const char* path) {
  expect_no_error(profile.write_to(path, process, image, kind), path);
  expect_written(std::printf("Process %d (%s): %llu sample%s, %llu of blocks in use: %s\n",
                             process.pid(), process.command(),
                             static_cast<unsigned long long>(profile.samples()),
                             plural(profile.samples()),
                             static_cast<unsigned long long>(profile.samples_in_use()), path) < 0 ||
                         std::fflush(stdout) != 0
                     ? errno
                     : 0);
}

bool names_folder(const char* path) {
  return is_folder(path) || (*path != 0 && path[std::strlen(path) - 1] == '/');
}

void make_folder(const char* path) {
  if (::mkdir(path, 0777) != 0 && errno != EEXIST)
    fail(exit_usage, "%s: %s; choose a directory with --output DIR/", path,
         os::describe_error(errno).text);
  if (!is_folder(path))
    fail(exit_usage, "%s: not a directory; choose one with --output DIR/", path);
}

// Chooses the name of no existing file, so that a second profile does not overwrite the first.
void choose_name(char (&name)[PATH_MAX], const char* folder, pid_t pid) {
  format(name, sizeof name, "%stsmalloc.%d.pb", folder, pid);
  for (int number = 2; ::access(name, F_OK) == 0; ++number)
    format(name, sizeof name, "%stsmalloc.%d.%d.pb", folder, pid, number);
}

int profile_process(const CommandLine& line, pid_t pid, Settings settings) {
  Process process{pid};
  EngineImage image;
  open_engine(process, Process::Residency::none, image);
  char name[PATH_MAX];
  if (settings.output == nullptr || is_folder(settings.output)) {
    const char* const output = settings.output != nullptr ? settings.output : "";
    const bool is_folder_name = *output == '\0' || output[std::strlen(output) - 1] == '/';
    char folder[PATH_MAX];
    format(folder, sizeof folder, "%s%s", output, is_folder_name ? "" : "/");
    choose_name(name, folder, process.pid());
    settings.output = name;
  }
  check_output(settings);
  RemoteOptions options{process, image};
  const SizeOption before = current_options.profile;
  // Started by ts_profile_start(): the option would end that profile.
  const bool is_programs = before.bits == 0 && ProfileImage::state(process, image).are_taken;
  if (is_programs && settings.interval != nullptr)
    line.fail_at("--interval", "the program called ts_profile_start() with its own interval");
  const bool asks = settings.seconds != 0 || settings.interval != nullptr;
  const bool samples = !is_programs && (before.bits == 0 || asks);
  if (samples) {
    set_profile(line, interval_of(settings));
    options.write();
  }
  if (samples || asks) {
    constexpr double default_seconds = 10;
    const double seconds = settings.seconds != 0 ? settings.seconds : default_seconds;
    dprintf(STDERR_FILENO, "sampling for %.4g s; Ctrl-C ends it\n", seconds);
    wait_for(seconds, process.pid());
  }
  // Again, since the thread through which it was read may have ended.
  Process now{process.pid()};
  EngineImage image_now;
  open_engine(now, Process::Residency::none, image_now);
  ProfileImage profile;
  expect_readable(now, profile.read(now, image_now));
  if (samples && !settings.keeps) {
    current_options.profile = before;
    options.write();
  }
  const auto kind = settings.is_peak ? engine::ProfileKind::peak : engine::ProfileKind::now;
  write_file(profile, now, image_now, kind, settings.output);
  return 0;
}

// The option for a program's processes, as an absolute path: they may change their directory.
void set_output_option(const char* path, const char* name) {
  char folder[PATH_MAX] = "";
  if (*path != '/' && ::getcwd(folder, sizeof folder) == nullptr)
    fail(exit_usage, "the working directory is gone; give an absolute path with --output /FILE");
  char whole[2 * PATH_MAX];
  format(whole, sizeof whole, "%s%s%s%s", folder, *folder != '\0' ? "/" : "", path, name);
  ::setenv("TSMALLOC_PROFILE_OUTPUT", whole, 1);
}

// Where a program's processes write: a file, or one file each in a directory, if it exists or the
// path ends like one.
void set_output(const CommandLine& line, const Settings& settings) {
  const char* const output = settings.output;
  if (std::strstr(output, "%p") != nullptr) line.fail_at(output, "may not contain %p");
  if (!names_folder(output)) {
    check_output(settings);
    return set_output_option(output, "");
  }
  make_folder(output);
  set_output_option(output, "/tsmalloc.%p.pb");
}

int profile_command(const CommandLine& line, const Settings& settings) {
  set_profile(line, interval_of(settings));  // or it is not an interval
  ::setenv("TSMALLOC_PROFILE", interval_of(settings), 1);
  if (settings.output != nullptr) set_output(line, settings);
  if (::getenv("TSMALLOC_PROFILE_OUTPUT") == nullptr) set_output_option("tsmalloc.%p.pb", "");
  if (settings.is_peak) ::setenv("TSMALLOC_PROFILE_AT", "peak", 1);
  return run_profiled(line.command(), ::getenv("TSMALLOC_PROFILE_OUTPUT"), settings.is_peak);
}

// Only the lab has options for reading profiles.
void expect_no_reader(const char* verb) {
  for (const char* const reader :
       {"show", "diff", "leaks", "flame", "folded", "symbolize", "run"}) {
    if (verb != nullptr && std::strcmp(verb, reader) == 0)
      fail(exit_missing, "profile %s needs the lab, which is not installed: %s", verb,
           how_to_get_lab);
  }
}

}  // namespace

int profile(char** whole) {
  // The lab, if installed, displays the profile, and has more options for programs. For a running
  // process, it calls `profile take`.
  char** arguments = whole + 2;
  if (*arguments != nullptr && std::strcmp(*arguments, "take") == 0) {
    ++arguments;
  } else {
    start_lab(whole);
    expect_no_reader(*arguments);
  }
  CommandLine line{"profile", help_of_profile, arguments,
                   CommandLine::Operands::processes_or_command};
  Settings settings;
  while (const char* const option = line.next_option()) {
    const auto is = [option](const char* name) { return std::strcmp(option, name) == 0; };
    if (is("--seconds")) {
      settings.seconds = line.next_number(option, 0.01);
    } else if (is("--interval")) {
      settings.interval = line.next_word(option);
    } else if (is("--output") || is("-o")) {
      settings.output = line.next_word(option);
    } else if (is("--peak")) {
      settings.is_peak = true;
    } else if (is("--keep")) {
      settings.keeps = true;
    } else if (is("--force") || is("-f")) {
      settings.overwrites = true;
    } else {
      line.fail_at_option(option);
    }
  }
  if (line.command() != nullptr) return profile_command(line, settings);
  const char* const output = settings.output;
  if (!line.processes().is_single() && output != nullptr && !names_folder(output))
    line.fail_at(output, "for several processes, --output must be a directory, DIR/");
  if (output != nullptr && names_folder(output)) make_folder(output);
  if (line.processes().is_single()) return profile_process(line, line.pid(), settings);
  List<pid_t> pids;
  line.processes().list_or_fail(pids);
  return Children{true}.run(
      pids, [&](pid_t pid, std::size_t) { return profile_process(line, pid, settings); });
}

}  // namespace ts
