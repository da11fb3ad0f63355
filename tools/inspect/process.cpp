// /proc/PID and process_vm_readv; see process.h.
#include "inspect/process.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/json_line.h"
#include "common/system.h"

namespace ts {
namespace {

// The length of the UTF-8 character that begins there; 0 if it is invalid, or a control character.
std::size_t printable_bytes(const char* text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const bool is_control = byte(0) < ' ' || byte(0) == 0x7f || (byte(0) == 0xc2 && byte(1) < 0xa0);
  return is_control ? 0 : utf8_length(text);
}

// Processes choose their names, which may contain any bytes, and go to a terminal or into JSON.
template <std::size_t Size>
void copy_printable(char (&to)[Size], const char* from) {
  format(to, Size, "%s", from);
  for (char* at = to; *at != '\0';) {
    const std::size_t count = printable_bytes(at);
    if (count == 0) *at = '?';
    at += count != 0 ? count : 1;
  }
}

// The stack pointer of a thread that waits in a system call; 0 for a running thread.
std::uintptr_t stack_pointer_of(const char* path) {
  PieceReader reader{path};
  char* const line = reader.next('\n');
  if (line == nullptr) return 0;
  // The third-last and the last field: stack pointer, program counter.
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
  if (!comm.is_open()) return errno == ENOENT ? ESRCH : errno;
  if (const char* const name = comm.next('\n')) copy_printable(command_, name);
  int error = look_at(pid_, residency);
  if (error == ESRCH) error = look_at_another_thread(residency);
  if (error == 0 && residency != Residency::none) read_threads();
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
  has_scan_ = scan_pages({0, end_of_page(1)});
  forget_residency();
  if (const int error = read_mappings(residency); error != 0) return error;
  // Reading memory takes more privileges than seeing mappings.
  char byte = 0;
  errno = 0;
  if (read(mappings_[0].range.begin, byte) || errno == EFAULT) return 0;
  return errno == EPERM || errno == ENOSYS ? EACCES : errno;
}

// If the first thread has ended before the others, the kernel shows nothing under its number.
int Process::look_at_another_thread(Residency residency) {
  int error = ESRCH;
  for_each_thread(pid_, [&](pid_t task) {
    if (task != pid_) error = look_at(task, residency);
    return error == ESRCH;
  });
  return error;
}

// Without sscanf, which takes three times as long: there may be thousands of mappings.
void Process::add(const char* line) {
  const auto past = [](const char* at, const char* characters) {
    return at + std::strspn(at, characters);
  };
  const auto to = [](const char* at, const char* characters) {
    return at + std::strcspn(at, characters);
  };
  Mapping& mapping = mappings_.add({});
  char* end = nullptr;
  mapping.range.begin = std::strtoul(line, &end, 16);
  mapping.range.end = std::strtoul(past(end, "-"), &end, 16);
  const char* const rights = past(end, " ");
  const char* const offset = to(rights, " ");
  mapping.is_code = to(rights, "x") < offset;
  const bool is_shared = to(rights, "s") < offset;
  const bool is_first = std::strtoul(offset, &end, 16) == 0;
  const char* const device = past(end, " ");
  const char* const inode = to(device, " ");
  mapping.is_file = std::strtoul(inode, &end, 10) != 0;
  mapping.begins_file = mapping.is_file && is_first;
  const char* const name = past(end, " ");
  const auto begins = [](const char* text, const char* with) {
    return std::strncmp(text, with, std::strlen(with)) == 0;
  };
  mapping.is_stack = begins(name, "[stack");
  mapping.is_heap = begins(name, "[heap]");
  // The kernel's internal file system for shared memory has the first device number without a disk.
  mapping.is_shared = is_shared && (begins(device, "00:01 ") || begins(name, "/dev/shm/"));
  if (!mapping.is_file) return;
  const char* const slash = std::strrchr(name, '/');
  copy_printable(mapping.name, slash != nullptr ? slash + 1 : name);
}

// maps has one line per mapping; smaps adds lines of figures, for which the kernel checks every
// page at once.
int Process::read_mappings(Residency residency) {
  char path[64];
  const bool asks_for_sizes =
      residency == Residency::shares || (residency == Residency::read && !has_scan_);
  format(path, sizeof path, "/proc/%d/%s", task_, asks_for_sizes ? "smaps" : "maps");
  PieceReader lines{path};
  if (!lines.is_open()) return errno == EPERM ? EACCES : errno;
  while (const char* const line = lines.next('\n')) {
    const auto note = [&](const char* key, std::size_t Mapping::*bytes) {
      const std::int64_t kb = mappings_.is_empty() ? -1 : number_after(line, key);
      if (kb >= 0) mappings_.last().*bytes = static_cast<std::size_t>(kb) * 1024;
    };
    if (std::strchr("0123456789abcdef", *line) != nullptr) {
      add(line);
    } else {
      note("Rss:", &Mapping::resident_bytes);
      note("Pss:", &Mapping::share_bytes);
    }
  }
  return mappings_.is_empty() ? ESRCH : 0;  // a kernel thread, or a process that has ended
}

std::size_t Process::first_after(std::uintptr_t address) {
  const bool is_found = mapping_ < mappings_.count() && address < mappings_[mapping_].range.end &&
                        (mapping_ == 0 || mappings_[mapping_ - 1].range.end <= address);
  if (is_found) return mapping_;
  const Mapping* const found = std::upper_bound(
      begin(), end(), address,
      [](std::uintptr_t at, const Mapping& mapping) { return at < mapping.range.end; });
  return mapping_ = static_cast<std::size_t>(found - begin());
}

void Process::read_threads() {
  for_each_thread(pid_, [this](pid_t task) {
    ++threads_;
    char path[64];
    format(path, sizeof path, "/proc/%d/task/%d/syscall", pid_, task);
    const std::uintptr_t pointer = stack_pointer_of(path);
    const std::size_t i = first_after(pointer);
    if (i < mappings_.count() && mappings_[i].range.begin <= pointer) mappings_[i].is_stack = true;
    return true;
  });
}

bool Process::read(std::uintptr_t address, void* to, std::size_t bytes) const {
  const iovec local{to, bytes};
  const iovec remote{reinterpret_cast<void*>(address), bytes};
  return process_vm_readv(task_, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

void Process::read_each(const std::uintptr_t* places, std::uint32_t* numbers,
                        std::size_t count) const {
  iovec remote[max_places];
  for (std::size_t i = 0; i < count; ++i)
    remote[i] = {reinterpret_cast<void*>(places[i]), sizeof numbers[0]};
  const iovec local{numbers, count * sizeof numbers[0]};
  process_vm_readv(task_, &local, 1, remote, count, 0);
}

std::size_t Process::anonymous_share() const {
  char path[64];
  format(path, sizeof path, "/proc/%d/smaps_rollup", task_);
  return static_cast<std::size_t>(std::max<std::int64_t>(bytes_after(path, "Pss_Anon:"), 0));
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

}  // namespace ts
