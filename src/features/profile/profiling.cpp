#include "features/profile/profiling.h"

#include <cerrno>
#include <climits>
#include <cstring>

#include "features/profile/sampling_switch.h"
#include "features/profile/stranded_bytes.h"
#include "os/atomic_file.h"
#include "os/error_line.h"
#include "os/options.h"
#include "os/os.h"

namespace ts::engine {
namespace {

// A copy of the tables, so that no thread waits for the file to be written; and the path of the
// program, for which a thread's stack may have no room.
class Copy {
 public:
  Copy() noexcept {
    const Guard guard{samples_lock};
    row_bytes_ = samples.rows.count * sizeof(SampleRow);
    const std::size_t stack_bytes = samples.stacks.count * sizeof(std::uint64_t);
    bytes_ = align_up(row_bytes_ + stack_bytes + PATH_MAX, os::page_bytes());
    memory_ = static_cast<std::byte*>(os::map(bytes_));
    if (memory_ == nullptr) return;
    std::memcpy(memory_, samples.rows.items, row_bytes_);
    std::memcpy(memory_ + row_bytes_, samples.stacks.items, stack_bytes);
    auto* const rows = reinterpret_cast<SampleRow*>(memory_);
    for (std::uint32_t i = 0; i < samples.in_use.count; ++i) {
      const Sample& sample = samples.in_use.items[i];
      if (sample.placeholder == nullptr) continue;
      const Span* const slab = slab_of(sample.placeholder);
      add_stranded(rows[sample.row], sample, slab, used(*slab));
    }
    source_.rows = rows;
    source_.row_count = samples.rows.count;
    source_.stacks = reinterpret_cast<const std::uint64_t*>(memory_ + row_bytes_);
    source_.stack_words = samples.stacks.count;
    program_ = reinterpret_cast<char*>(memory_ + row_bytes_ + stack_bytes);
    source_.dropped = samples.dropped;
    source_.interval = samples.interval;
    set_times(source_, samples, os::coarse_milliseconds());
  }
  ~Copy() {
    if (memory_ != nullptr) os::unmap_unused(memory_, bytes_);
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  bool is_valid() const noexcept { return memory_ != nullptr; }
  ProfileSource& source() noexcept { return source_; }
  // A buffer of PATH_MAX bytes.
  char* program() noexcept { return program_; }

 private:
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t row_bytes_ = 0;
  char* program_ = nullptr;
  ProfileSource source_;
};

// ---- the file that the options name ----

constinit std::uint64_t first_process = 0;
constinit const char* library_version = "";
constinit BytesInUse* bytes_in_use = nullptr;
constinit std::atomic<std::uint32_t> was_at_limit{0};

// For the file at a limit or at exit: the thread's stack may have no room for a path.
constinit char output_path[PATH_MAX] = {};

// The path from the options, with %p replaced by the process ID. Without %p, the ID is appended in
// the child of a fork, which would otherwise overwrite its parent's file.
void find_output_path() noexcept {
  os::Text path{output_path, sizeof output_path - 1};
  bool has_number = false;
  for (const char* c = profile_output(); *c != '\0'; ++c) {
    if (c[0] == '%' && c[1] == 'p') {
      path.number(os::process_id());
      has_number = true;
      ++c;
    } else {
      path.text(c, 1);
    }
  }
  if (!has_number && os::process_id() != first_process) {
    path.text(".");
    path.number(os::process_id());
  }
  output_path[path.length()] = '\0';
}

void write_file(ProfileKind kind) noexcept {
  find_output_path();
  os::AtomicFile file{output_path};
  int error = file.error();
  if (error == 0) error = write_profile(file.descriptor(), kind);
  if (error == 0) error = file.keep();
  if (error == 0) return;
  os::ErrorLine line{"the heap profile is not written to "};
  line.text(output_path);
  line.text(": ");
  line.text(os::describe_error(error).text);
  line.text("; TSMALLOC_PROFILE_OUTPUT=FILE names another");
  line.write();
}

bool has_samples() noexcept {
  const Guard guard{samples_lock};
  return samples.rows.count != 0;
}

void write_at_exit(void*) noexcept {
  const ProfileAt at = current_options.profile_at;
  if (at == ProfileAt::limit || !has_samples()) return;
  write_file(at == ProfileAt::peak ? ProfileKind::peak : ProfileKind::exit);
}

}  // namespace

int start_profile(std::size_t interval) noexcept {
  if (interval > max_sampling_interval) return EINVAL;
  os::refresh_modules();
  return set_sampling_interval(interval != 0 ? interval : usual_sampling_interval) ? 0 : ENOMEM;
}

void stop_profile() noexcept { set_sampling_interval(0); }

int write_profile(int descriptor, ProfileKind kind) noexcept {
  // At a limit, this is called from malloc, by a thread that the holder of the dynamic linker's
  // lock may be waiting for.
  if (kind == ProfileKind::limit) {
    os::refresh_modules_within_malloc();
  } else {
    os::refresh_modules();
  }
  Copy copy;
  if (!copy.is_valid()) return ENOMEM;
  char command[64];
  os::read_command(command, sizeof command);
  os::read_program(copy.program(), PATH_MAX);
  ProfileSource& source = copy.source();
  source.module = [](const void*, unsigned number) noexcept {
    return number < os::max_modules ? os::module_met(number) : nullptr;
  };
  source.version = library_version;
  source.command = command;
  source.program = copy.program();
  source.process = os::process_id();
  source.unix_ns = os::unix_nanoseconds();
  source.kind = kind;
  const bool is_of_now = kind == ProfileKind::now || kind == ProfileKind::exit;
  if (is_of_now && bytes_in_use != nullptr) source.in_use_bytes = bytes_in_use();
  return write_profile(source, descriptor);
}

void begin_profile(const char* version, BytesInUse* measure) noexcept TS_NO_ANALYSIS {
  library_version = version;
  bytes_in_use = measure;
  const SizeOption option = current_options.profile;
  first_process = os::process_id();
  samples.process_began_ms = os::coarse_milliseconds();  // without the lock: nothing else sets it
  if (option.bits == 0) return;
  os::refresh_modules();
  follow_profile_option();
  os::call_at_exit(write_at_exit);
}

bool profiles_at_limit() noexcept {
  return current_options.profile_at == ProfileAt::limit && is_sampling();
}

void profile_at_limit() noexcept {
  if (!profiles_at_limit()) return;
  // relaxed: it does not matter which thread writes the file
  if (was_at_limit.exchange(1, std::memory_order_relaxed) == 0) write_file(ProfileKind::limit);
}

}  // namespace ts::engine
