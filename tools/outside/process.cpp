// /proc/PID and process_vm_readv; see process.h.
#include "outside/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "launch/system.h"

namespace ts {
namespace {

constexpr std::uint64_t is_present = std::uint64_t{1} << 63;  // of an entry of pagemap

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// PAGEMAP_SCAN, which Linux has from 6.7 on; older headers do not know it.
struct PageRegion {
  std::uint64_t begin, end, categories;
};
struct PageScan {
  std::uint64_t size, flags, begin, end, walk_end, regions, region_count, most_pages;
  std::uint64_t inverted, all_of, any_of, returned;
};
constexpr unsigned long page_scan = _IOWR('f', 16, PageScan);
constexpr std::uint64_t is_present_page = 1 << 3;
constexpr std::uint64_t is_zero_page = 1 << 5;

// Names are the process's choice, and go to a terminal.
template <std::size_t Size>
void copy_printable(char (&to)[Size], const char* from) {
  format(to, Size, "%s", from);
  for (char* at = to; *at != '\0'; ++at) {
    if (static_cast<unsigned char>(*at) < ' ' || *at == '\x7f') *at = '?';
  }
}

// The stack pointer of a thread that waits in a system call; 0 of one that runs.
std::uintptr_t stack_pointer_of(const char* path) {
  PieceReader reader{path};
  char* const line = reader.next('\n');
  if (line == nullptr) return 0;
  // The last fields but one and the last: stack pointer, program counter.
  char* const last = std::strrchr(line, ' ');
  if (last == nullptr) return 0;
  *last = '\0';
  const char* const before = std::strrchr(line, ' ');
  return before != nullptr ? std::strtoull(before + 1, nullptr, 16) : 0;
}

}  // namespace

Process::~Process() {
  if (pagemap_ >= 0) close(pagemap_);
}

int Process::open(Residency residency) {
  char path[64];
  format(path, sizeof path, "/proc/%d/comm", pid_);
  PieceReader comm{path};
  if (!comm.is_open()) return ESRCH;
  if (const char* const name = comm.next('\n')) copy_printable(command_, name);
  int error = look_at(pid_, residency);
  if (error == ESRCH) error = look_at_another_thread(residency);
  if (error == 0 && residency == Residency::read) read_threads();
  return error;
}

// By one of its threads, or by its own number.
int Process::look_at(pid_t task, Residency residency) {
  task_ = task;
  char path[64];
  format(path, sizeof path, "/proc/%d/pagemap", task_);
  if (pagemap_ >= 0) close(pagemap_);
  pagemap_ = ::open(path, O_RDONLY | O_CLOEXEC);
  if (pagemap_ < 0) return errno == EPERM ? EACCES : errno;
  has_scan_ = scan_pages({0, page_bytes()});
  forget_residency();
  if (const int error = read_mappings(residency); error != 0) return error;
  // To read memory takes more rights than to see mappings.
  char byte = 0;
  errno = 0;
  if (read(mappings_[0].range.begin, byte) || errno == EFAULT) return 0;
  return errno == EPERM || errno == ENOSYS ? EACCES : errno;
}

// Where the first thread has ended before the others, the kernel shows nothing by its number.
int Process::look_at_another_thread(Residency residency) {
  char path[64];
  format(path, sizeof path, "/proc/%d/task", pid_);
  DIR* const folder = opendir(path);
  if (folder == nullptr) return ESRCH;
  int error = ESRCH;
  while (const dirent* const entry = readdir(folder)) {
    const auto task = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (task > 0 && task != pid_) error = look_at(task, residency);
    if (error != ESRCH) break;
  }
  closedir(folder);
  return error;
}

void Process::add(const char* line) {
  Mapping& mapping = mappings_.add({});
  unsigned long begin = 0;
  unsigned long end = 0;
  unsigned long offset = 0;
  unsigned long inode = 0;
  char rights[5] = "";
  int name_at = 0;
  std::sscanf(line, "%lx-%lx %4s %lx %*s %lu %n", &begin, &end, rights, &offset, &inode, &name_at);
  mapping.range = {begin, end};
  mapping.is_file = inode != 0;
  mapping.begins_file = inode != 0 && offset == 0;
  mapping.is_code = std::strchr(rights, 'x') != nullptr;
  mapping.is_stack = std::strstr(line, "[stack") != nullptr;
  if (inode == 0) return;
  const char* const slash = std::strrchr(line + name_at, '/');
  copy_printable(mapping.name, slash != nullptr ? slash + 1 : line + name_at);
}

// maps has a line for each mapping; smaps, too, and lines of figures, for which the kernel looks at
// every page at once.
int Process::read_mappings(Residency residency) {
  char path[64];
  format(path, sizeof path, "/proc/%d/%s", task_,
         residency == Residency::read && !has_scan_ ? "smaps" : "maps");
  PieceReader lines{path};
  if (!lines.is_open()) return errno == EPERM ? EACCES : errno;
  while (const char* const line = lines.next('\n')) {
    constexpr std::size_t bytes_per_kb = 1024;
    const std::int64_t resident = has_scan_ ? -1 : number_after(line, "Rss:");
    if (resident >= 0 && !mappings_.is_empty()) {
      mappings_.last().resident_bytes = static_cast<std::size_t>(resident) * bytes_per_kb;
    } else if (std::strchr("0123456789abcdef", *line) != nullptr) {
      add(line);
    }
  }
  return mappings_.is_empty() ? ESRCH : 0;  // a kernel thread, or a process that has ended
}

std::size_t Process::first_behind(std::uintptr_t address) {
  const bool is_found = mapping_ < mappings_.count() && address < mappings_[mapping_].range.end &&
                        (mapping_ == 0 || mappings_[mapping_ - 1].range.end <= address);
  if (is_found) return mapping_;
  const Mapping* const found = std::upper_bound(
      begin(), end(), address,
      [](std::uintptr_t at, const Mapping& mapping) { return at < mapping.range.end; });
  return mapping_ = static_cast<std::size_t>(found - begin());
}

void Process::read_threads() {
  char path[320];
  format(path, sizeof path, "/proc/%d/task", pid_);
  DIR* const folder = opendir(path);
  if (folder == nullptr) return;
  while (const dirent* const entry = readdir(folder)) {
    if (*entry->d_name == '.') continue;
    ++threads_;
    format(path, sizeof path, "/proc/%d/task/%s/syscall", pid_, entry->d_name);
    const std::uintptr_t pointer = stack_pointer_of(path);
    const std::size_t i = first_behind(pointer);
    if (i < mappings_.count() && mappings_[i].range.begin <= pointer) mappings_[i].is_stack = true;
  }
  closedir(folder);
}

bool Process::read(std::uintptr_t address, void* to, std::size_t bytes) const {
  const iovec local{to, bytes};
  const iovec remote{reinterpret_cast<void*>(address), bytes};
  return process_vm_readv(task_, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

std::int64_t Process::status(const char* key) const {
  char path[64];
  format(path, sizeof path, "/proc/%d/status", pid_);
  PieceReader lines{path};
  while (const char* const line = lines.next('\n')) {
    const std::int64_t first = number_after(line, key);
    if (first < 0) continue;
    const char* const last = std::strrchr(line, '\t');
    return last != nullptr ? std::strtoll(last + 1, nullptr, 10) : first;
  }
  return -1;
}

// By PAGEMAP_SCAN; false if the kernel does not have it.
bool Process::scan_pages(const Range& range) {
  PageRegion found[most_regions];
  PageScan scan{};
  scan.size = sizeof scan;
  scan.begin = range.begin;
  scan.end = range.end;
  scan.regions = reinterpret_cast<std::uint64_t>(found);
  scan.region_count = most_regions;
  scan.all_of = is_present_page | is_zero_page;
  scan.inverted = is_zero_page;  // so: which are none
  scan.returned = is_present_page;
  const int count = ioctl(pagemap_, page_scan, &scan);
  if (count < 0) return false;
  for (int i = 0; i < count; ++i) regions_[i] = {found[i].begin, found[i].end};
  region_count_ = static_cast<std::size_t>(count);
  window_.end = scan.walk_end > range.begin ? scan.walk_end : range.end;
  return true;
}

// By entries of /proc/PID/pagemap, so many at a time, on kernels before 6.7.
void Process::read_pages(const Range& range) {
  constexpr std::size_t most_entries = 8192;
  static std::uint64_t entries[most_entries];
  const std::size_t first = range.begin / page_bytes();
  const std::size_t count = std::min(most_entries, range.bytes() / page_bytes());
  const ssize_t bytes = pread(pagemap_, entries, count * sizeof entries[0],
                              static_cast<off_t>(first * sizeof entries[0]));
  if (bytes <= 0) return;
  std::size_t i = 0;
  for (; i < static_cast<std::size_t>(bytes) / sizeof entries[0]; ++i) {
    if ((entries[i] & is_present) == 0) continue;
    const std::uintptr_t at = (first + i) * page_bytes();
    const bool continues = region_count_ != 0 && regions_[region_count_ - 1].end == at;
    if (!continues && region_count_ == most_regions) break;
    if (!continues) regions_[region_count_++] = {at, at};
    regions_[region_count_ - 1].end += page_bytes();
  }
  window_.end = (first + i) * page_bytes();
}

// At the pages from the beginning of the range on, of whole pages.
void Process::look_at_pages(const Range& range) {
  window_ = range;
  region_count_ = region_ = 0;
  if (!scan_pages(range)) read_pages(range);
}

// Some mappings on, at the end of one or within it: beyond the last one the kernel looks at nothing.
std::uintptr_t Process::end_of_window(std::uintptr_t begin) {
  const std::uintptr_t limit = begin + std::min(most_bytes, ~begin);
  const std::size_t i = first_behind(limit);
  if (i < mappings_.count() && mappings_[i].range.begin < limit) return limit;
  return mappings_[i - 1].range.end;
}

// Of whole pages. Addresses without a mapping are left out, those between mappings that are near to
// each other are looked at with them.
std::size_t Process::resident_within(const Range& range) {
  std::size_t bytes = 0;
  for (std::uintptr_t at = range.begin; at < range.end;) {
    if (at < window_.begin || at >= window_.end) {
      const std::size_t i = first_behind(at);
      if (i == mappings_.count()) break;
      at = std::max(at, mappings_[i].range.begin);
      if (at >= range.end) break;
      look_at_pages({at, end_of_window(at)});
      if (at >= window_.end) break;
    }
    const std::uintptr_t end = std::min(range.end, window_.end);
    if (region_ != 0 && at < regions_[region_ - 1].end) region_ = 0;
    while (region_ < region_count_ && regions_[region_].end <= at) ++region_;
    for (std::size_t i = region_; i < region_count_ && regions_[i].begin < end; ++i)
      bytes += std::min(end, regions_[i].end) - std::max(at, regions_[i].begin);
    at = end;
  }
  return bytes;
}

std::uintptr_t Process::end_of_page(std::uintptr_t address) {
  return (address + page_bytes() - 1) & -page_bytes();
}

std::size_t Process::resident_bytes_of(const Mapping& mapping) {
  return has_scan_ ? resident_within(mapping.range) : mapping.resident_bytes;
}

std::size_t Process::resident_bytes(const Range& range) {
  // Whole pages: two ranges that share one count it both.
  const std::uintptr_t begin = range.begin & -page_bytes();
  const std::uintptr_t end = end_of_page(range.end);
  if (end <= begin) return 0;
  // Most ranges lie within the region that was looked at last.
  if (region_ < region_count_ && regions_[region_].begin <= begin && end <= regions_[region_].end)
    return end - begin;
  return resident_within({begin, end});
}

}  // namespace ts
