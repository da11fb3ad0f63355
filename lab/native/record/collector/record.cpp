// record: runs a program, and writes every event of its heap into a trace.
//
// libtsmalloc-record.so, preloaded into the program and all that it starts, only leaves events in
// memory; this program orders and writes them as they come. It does not use the recorded heap,
// and the recording continues however the program ends. docs/formats/trace.md describes the trace
// and the JSON line.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "clock.h"
#include "common/json_line.h"
#include "common/system.h"
#include "launch/launch.h"
#include "launch/options.h"
#include "record/collector/collector.h"
#include "record/ring.h"
#include "trace/writer.h"

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

// --- the file of the ring ---
//
// The file must be fully allocated before a program writes into it, since a full file system would
// kill the program with SIGBUS. The next recorder removes the files of a killed one, recognized by
// a lock that dies with its holder.

constexpr char directory_prefix[] = "tsmalloc-record-";
constexpr char file_name[] = "ring";

// Where files are in memory, if there is such a place.
std::string parent_directory() {
  if (access("/dev/shm", W_OK | X_OK) == 0) return "/dev/shm";
  const char* const given = std::getenv("TMPDIR");
  return given != nullptr && *given != '\0' ? given : "/tmp";
}

// Of killed recorders: nobody holds their lock.
void remove_leftovers(const std::string& parent) {
  std::error_code ignored;
  for (const std::filesystem::directory_entry& entry :
       std::filesystem::directory_iterator{parent, ignored}) {
    if (!entry.path().filename().string().starts_with(directory_prefix)) continue;
    const std::string ring = (entry.path() / file_name).string();
    const int file = open(ring.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) continue;
    if (flock(file, LOCK_EX | LOCK_NB) == 0) {
      unlink(ring.c_str());
      rmdir(entry.path().c_str());
    }
    close(file);
  }
}

[[noreturn]] void fail_ring(const std::string& what, int error_number) {
  throw trace::Error{what + ": " + strerrordesc_np(error_number) +
                     ". Free some space there, use a smaller ring (--ring-mib), or set TMPDIR."};
}

class RingFile {
 public:
  // Throws trace::Error, with the remedy, if there is no room.
  RingFile(std::size_t chunks, RingClock clock)
      : bytes_{sizeof(Ring) + std::min(chunks, max_chunks) * chunk_bytes} {
    const std::string parent = parent_directory();
    remove_leftovers(parent);
    create_in(parent);
    if (const int error_number = posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes_))) {
      unlink(path_.c_str());
      rmdir(directory_.c_str());
      fail_ring("cannot create a ring of " + std::to_string(bytes_ >> 20) + " MiB in " + parent,
                error_number);
    }
    void* const mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    if (mapped == MAP_FAILED) fail_ring("cannot map the ring " + path_, errno);
    ring_ = ::new (mapped) Ring;  // no value: the file is all zeros
    ring_->clock = clock;
    if (readlink("/proc/self/ns/pid", ring_->pid_namespace, sizeof ring_->pid_namespace - 1) < 0) {
      ring_->pid_namespace[0] = '\0';
    }
    ring_->chunk_count = static_cast<std::uint32_t>(std::min(chunks, max_chunks));
    std::memcpy(ring_->magic, ring_magic, sizeof ring_magic);
  }

  ~RingFile() {
    if (ring_ != nullptr) munmap(static_cast<void*>(ring_), bytes_);
    unlink(path_.c_str());
    rmdir(directory_.c_str());
    if (descriptor_ >= 0) close(descriptor_);
  }

  RingFile(const RingFile&) = delete;
  RingFile& operator=(const RingFile&) = delete;

  const std::string& path() const { return path_; }
  Ring& ring() { return *ring_; }

 private:
  void create_in(const std::string& parent) {
    std::string pattern = parent + "/" + directory_prefix + "XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr)
      fail_ring("cannot create a directory in " + parent, errno);
    directory_ = pattern;
    path_ = directory_ + "/" + file_name;
    descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor_ < 0 || flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      const int error_number = errno;
      rmdir(directory_.c_str());
      fail_ring("cannot create the ring " + path_, error_number);
    }
  }

  std::string directory_;
  std::string path_;
  int descriptor_ = -1;
  Ring* ring_ = nullptr;
  std::size_t bytes_ = 0;
};

// --- programs that ran and were not recorded ---
//
// The loader ignores LD_PRELOAD silently, and a trace that lacks half of a run looks like any
// other. Processes are sampled from time to time; one that is shorter-lived, and ends as another
// process's child, is not noticed.

constexpr char shim_name[] = "libtsmalloc-record.so";
constexpr std::size_t max_programs = 1000;

std::string proc(pid_t pid, const char* what) {
  return "/proc/" + std::to_string(pid) + "/" + what;
}

std::string read_all(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

class Unrecorded {
 public:
  // Checks all our descendants. A process seen twice with the same file, with enough time to begin,
  // is not going to.
  void scan(ProcessTree& tree, Collector& collector) {
    std::map<pid_t, std::string> suspects;
    tree.refresh();
    for (const pid_t pid : tree.processes()) {
      std::error_code ignored;
      const std::string file = std::filesystem::read_symlink(proc(pid, "exe"), ignored);
      if (file.empty()) continue;  // it has ended
      const std::string name = base_name(file.c_str());
      const std::string* const program = collector.program_of(pid);
      if (program != nullptr && *program == name.substr(0, name_bytes - 1)) continue;
      const auto suspect = suspects_.find(pid);
      const bool is_second_look = suspect != suspects_.end() && suspect->second == file;
      // A child of vfork, or one that has not allocated yet, has its parent's mappings.
      if (is_second_look && read_all(proc(pid, "maps")).find(shim_name) == std::string::npos) {
        add(name);
      }
      suspects[pid] = file;
    }
    suspects_ = std::move(suspects);
  }

  // A child of ours that has ended and has not been reaped.
  void check_ended(pid_t pid, const Collector& collector) {
    if (collector.is_known_process(pid)) return;
    std::string name = read_all(proc(pid, "comm"));
    if (!name.empty() && name.back() == '\n') name.pop_back();
    // The kernel keeps only the beginning of a name; look() may have seen all of it.
    constexpr std::size_t kept_bytes = 15;
    const bool is_cut = name.size() == kept_bytes;
    const bool is_known = std::ranges::any_of(programs_, [&](const std::string& program) {
      return is_cut && program.compare(0, name.size(), name) == 0;
    });
    if (!is_known) add(name);
  }

  // The names of their files, without directories.
  const std::vector<std::string>& programs() const { return programs_; }

 private:
  void add(const std::string& name) {
    const bool is_known = std::ranges::find(programs_, name) != programs_.end();
    if (!is_known && programs_.size() < max_programs) programs_.push_back(name);
  }

  std::map<pid_t, std::string> suspects_;  // and their files, as last seen
  std::vector<std::string> programs_;
};

// --- from the start of the program to the end of its last process, and the line of JSON ---

constexpr Nanoseconds compare_interval_ns = 10 * ns_per_ms;
constexpr Nanoseconds flush_interval_ns = ns_per_second;
constexpr Nanoseconds scan_interval_ns = 50 * ns_per_ms;

// The ring holds a million records: what a program that does nothing else writes in 50 ms.
constexpr Nanoseconds shortest_nap_ns = ns_per_ms;
constexpr Nanoseconds longest_nap_ns = 5 * ns_per_ms;
constexpr std::size_t many_records = 20'000;  // in a round: then more have already come

// How it ended, as waitpid() will report, except for a core dump.
int wait_status_of(const siginfo_t& info) {
  return info.si_code == CLD_EXITED ? W_EXITCODE(info.si_status, 0) : info.si_status;
}

void write_image(JsonLine& line, const ImageReport& image) {
  line.begin_object();
  line.add("image", image.number);
  line.add("pid", image.pid);
  line.add_text("program", image.program);
  line.add_text("allocator", image.allocator);
  line.add_if(image.parent != trace::no_image, "parent", image.parent);
  line.add_text("birth", trace::name(image.birth));
  line.add_text("end", trace::name(image.end));
  line.add("events", image.sums.events);
  line.add("objects", image.sums.objects);
  line.add("frees", image.sums.frees);
  line.add("threads", image.sums.threads);
  line.add("null_frees", image.null_frees);
  line.add("unknown_frees", image.sums.unknown_frees);
  line.add("unknown_resizes", image.sums.unknown_resizes);
  line.add("missed_frees", image.sums.missed_frees);
  line.add("unfinished_resizes", image.sums.unfinished);
  line.add("lost_events", image.lost_events);
  line.add("waits", image.waits);
  line.add("wait_ns", image.wait_ns);
  line.end_object();
}

class Session {
 public:
  Session(Ring& ring, Clock& clock, TraceSink& sink)
      : ring_{ring},
        clock_{clock},
        sink_{sink},
        collector_{ring, clock, sink},
        end_{options.timeout_ns, child.exec_ns} {}

  // Returns when no process is left, or none that can be ended; the trace is finished.
  void run() {
    while (reap() && !end_.gives_up()) {
      end_.pass_deadline_if_due();
      run_due_tasks();
      wait(collector_.collect());
    }
    collector_.conclude();
    sink_.finish();
  }

  // Writes the line of JSON; docs/formats/trace.md describes its fields.
  void report(int descriptor) const {
    JsonLine line{descriptor};
    begin_report(line, "tsmalloc-record/1", options, child, end_);
    line.add_if(child.error_number == 0, "wall_ns", end_.wall_ns());
    sink_.failure().empty() ? line.add_null("write_error")
                            : line.add_text("write_error", sink_.failure());
    line.add("trace_bytes", sink_.bytes());
    std::vector<ImageReport> images = collector_.reports();
    std::ranges::sort(images, {}, &ImageReport::number);
    std::uint64_t events = 0;
    for (const ImageReport& image : images) events += image.sums.events;
    line.add("events", events);
    line.add("images_without_place", ring_.images_without_place.load(std::memory_order_relaxed));
    line.add("images_without_room", ring_.images_without_mapping.load(std::memory_order_relaxed));
    line.begin_list("images");
    for (const ImageReport& image : images) write_image(line, image);
    line.end_list();
    line.begin_list("unrecorded");
    for (const std::string& program : unrecorded_.programs()) {
      line.begin_object();
      line.add_text("program", program);
      line.end_object();
    }
    line.end_list();
    finish_report(line);
  }

 private:
  // False when there is no child left. Ended processes are examined before they are reaped. The
  // collector is told the status twice: its round may use it for an image already known to be dead,
  // or discard it on finding a new image, as the status of an earlier process with that ID.
  bool reap() {
    for (;;) {
      siginfo_t info{};
      if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return false;  // ECHILD
      if (info.si_pid == 0) return true;
      collector_.note_end(info.si_pid, wait_status_of(info));
      collector_.collect();
      unrecorded_.check_ended(info.si_pid, collector_);
      int status = 0;
      if (waitpid(info.si_pid, &status, WNOHANG) != info.si_pid) return true;
      collector_.note_end(info.si_pid, status);
      end_.note_end(info.si_pid == child.pid, status);
    }
  }

  void run_due_tasks() {
    const Nanoseconds now = now_ns();
    if (now >= compare_ns_) {
      clock_.compare();
      compare_ns_ = now + compare_interval_ns;
    }
    if (now >= flush_ns_) {
      sink_.flush();
      flush_ns_ = now + flush_interval_ns;
    }
    if (now >= scan_ns_) {
      unrecorded_.scan(end_.tree(), collector_);
      scan_ns_ = now_ns() + scan_interval_ns;
    }
  }

  void wait(std::size_t found) {
    quiet_rounds_ = found == 0 ? quiet_rounds_ + 1 : 0;
    Nanoseconds nap_ns = std::min(shortest_nap_ns * (1 + quiet_rounds_ / 16), longest_nap_ns);
    if (found >= many_records) nap_ns = 0;
    end_.wait(now_ns() + nap_ns);
  }

  const Ring& ring_;
  Clock& clock_;
  TraceSink& sink_;
  Collector collector_;
  Unrecorded unrecorded_;
  TreeEnd end_;
  Nanoseconds compare_ns_ = 0;
  Nanoseconds flush_ns_ = 0;
  Nanoseconds scan_ns_ = 0;
  int quiet_rounds_ = 0;  // without a record, one after the other
};

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
       ring_chunks = std::max<std::size_t>(parse_whole(argument, max_chunks), min_chunks);
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
  Preload& shim = options.preloads[0];
  const std::string beside =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../lib" / shim_name;
  const char* const file = shim_path != nullptr ? shim_path : beside.c_str();
  if (realpath(file, shim.resolved) == nullptr) {
    fail_usage({"cannot find '", file, "': ", strerrordesc_np(errno), "; reinstall tsmalloc."});
  }
  // A link is not resolved: it may be there for its name.
  format(shim.path, sizeof shim.path, "%s", shim_path != nullptr ? shim_path : shim.resolved);
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
  options.preload_count = 1;  // the shim's place, before those of the command line
  parse_options(argument_count, arguments, help, own_options, options);
  ProcessTree::require_kernel_support();
  preload_shim();
  const bool is_new = try_trace_file();
  const int output = open_output(options);
  Clock clock;
  RingFile file{ring_chunks, clock.has_counter() ? RingClock::cycles : RingClock::monotonic};
  // The programs inherit the ring's name, and a setting that keeps the allocator from starting a
  // thread of its own, unless the user wants one.
  setenv(ring_variable, file.path().c_str(), 1);
  setenv("TSMALLOC_BACKGROUND", "off", 0);
  launch(options, child);
  raise_file_limit();
  const bool is_started = child.error_number == 0;
  TraceSink sink;
  if (is_started) {
    sink.open(trace_path);
  } else if (is_new) {
    unlink(trace_path);
  }
  const auto session = std::make_unique<Session>(file.ring(), clock, sink);
  if (is_started) session->run();
  session->report(output);
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
