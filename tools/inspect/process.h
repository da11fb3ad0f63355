// Another process, as the kernel shows it: its mappings, its memory, and which pages are resident.
// No code is injected, and the process is not stopped (stopped_threads.h does that). So this works
// on a stripped or static program, in a container, and in a hanging process.
#pragma once

#include <dirent.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "common/system.h"
#include "inspect/list.h"
#include "inspect/range.h"
#include "inspect/residency_cache.h"

namespace ts {

// Calls `visit(thread)` for each thread of a process, until it returns false. False if there is no
// such process.
template <class Visit>
bool for_each_thread(pid_t process, Visit visit) {
  char path[64];
  format(path, sizeof path, "/proc/%d/task", process);
  DIR* const folder = opendir(path);
  if (folder == nullptr) return false;
  while (const dirent* const entry = readdir(folder)) {
    const auto thread = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (thread > 0 && !visit(thread)) break;
  }
  closedir(folder);
  return true;
}

struct Mapping {
  Range range;
  std::size_t resident_bytes;  // with shares, or if the kernel cannot be asked about ranges
  std::size_t share_bytes;     // with shares: its proportional set size
  bool is_file;
  bool begins_file;  // with the file's first byte
  bool is_stack;     // a thread's stack pointer is in it
  bool is_shared;    // memory that other processes may map, of System V, POSIX or memfd_create
  bool is_heap;      // that brk() extends
  bool is_code;
  char name[64];  // the end of the file's path
};

class Process {
 public:
  explicit Process(pid_t pid) : pid_{pid}, task_{pid} {}
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Reads the mappings and the command's name; with `residency`, also what resident_bytes() of a
  // mapping needs and the stacks of threads; with `shares`, what is shared. Returns 0, or an error
  // number: ESRCH if there is no such process, EACCES if it may not be inspected.
  enum class Residency : std::uint8_t { none, read, shares };
  int open(Residency residency);

  pid_t pid() const { return pid_; }
  // The thread through which to read its memory and files, since the first one may have ended.
  pid_t task() const { return task_; }
  const char* command() const { return command_; }
  std::size_t threads() const { return threads_; }
  const Mapping* begin() const { return mappings_.begin(); }
  const Mapping* end() const { return mappings_.end(); }

  // The number in the line "KEY:\t..." of /proc/PID/status, the last one if there are several; -1
  // if there is no such line.
  std::int64_t status(const char* key) const;

  // The proportional set size of its anonymous memory.
  std::size_t anonymous_share() const;

  // Copies memory; false if part of it is not mapped, or the process has ended.
  bool read(std::uintptr_t address, void* to, std::size_t bytes) const;
  template <class T>
  bool read(std::uintptr_t address, T& to) const {
    return read(address, &to, sizeof to);
  }
  // Copies a number from each of at most `max_places` places, up to the first that is not mapped.
  static constexpr std::size_t max_places = 256;
  void read_each(const std::uintptr_t* places, std::uint32_t* numbers, std::size_t count) const;

  // How many bytes of the OS pages that the range touches are resident. Pages that were only read,
  // which share the kernel's zero page, do not count if the kernel distinguishes them (Linux 6.7
  // and newer).
  std::size_t resident_bytes(const Range& range);
  std::size_t resident_bytes_of(const Mapping& mapping);
  // Whether all of it is known to be resident: most ranges lie within the region checked last.
  bool is_resident(const Range& range) const {
    return region_ < region_count_ && regions_[region_].covers(range);
  }
  static std::uintptr_t end_of_page(std::uintptr_t address);
  // Call this when pages have come or gone since the last query.
  void forget_residency() {
    window_ = {};
    region_count_ = 0;
  }
  // Pages resident in earlier samples count as resident, and new ones are recorded.
  void trust(ResidencyCache& blocks) { cache_ = &blocks; }

 private:
  int look_at(pid_t task, Residency residency);
  int look_at_another_thread(Residency residency);
  int read_mappings(Residency residency);
  void read_threads();
  void add(const char* line);
  // The first mapping that ends after the address, by its place in the list.
  std::size_t first_after(std::uintptr_t address);
  std::uintptr_t end_of_window(std::uintptr_t begin);
  std::size_t resident_within(const Range& range);
  void look_at_pages(const Range& range);
  void take_cached(std::uintptr_t address);
  void scan_or_read_pages(Range range);
  bool scan_pages(const Range& range);
  void read_pages(const Range& range);

  static constexpr std::size_t max_regions = 1024;
  // The kernel holds the process's mmap lock while it scans this much.
  static constexpr std::size_t max_bytes = std::size_t{256} << 20;

  pid_t pid_;
  pid_t task_;  // the thread through which memory is read
  int pagemap_ = -1;
  char command_[64] = "";
  std::size_t threads_ = 0;
  bool has_scan_ = false;
  List<Mapping> mappings_;
  std::size_t mapping_ = 0;  // where the last search in the list ended
  // Among the addresses queried last, those of resident pages, in order.
  Range window_{};
  Range regions_[max_regions];
  std::size_t region_count_ = 0;
  std::size_t region_ = 0;  // where the last search in them ended
  ResidencyCache* cache_ = nullptr;
};

}  // namespace ts
