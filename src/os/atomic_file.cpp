#include "os/atomic_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>

#include "os/error_line.h"
#include "os/os.h"
#include "os/system_call.h"

namespace ts::os {
namespace {

constexpr std::uint64_t file_too_large = std::uint64_t{1} << (SIGXFSZ - 1);

bool is_pending() noexcept {
  std::uint64_t signals = 0;
  call(SYS_rt_sigpending, &signals, sizeof signals);
  return (signals & file_too_large) != 0;
}

void take_back() noexcept {
  constexpr timespec no_time = {};
  while (call(SYS_rt_sigtimedwait, &file_too_large, nullptr, &no_time, sizeof file_too_large) > 0) {
  }
}

// 0 if there is a regular file or nothing at the path, otherwise an errno value.
int error_at(const char* path) noexcept {
  struct stat there = {};  // system call: fstatat() requires glibc 2.33
  if (call(SYS_newfstatat, AT_FDCWD, path, &there, AT_SYMLINK_NOFOLLOW) != 0) return 0;
  if (S_ISREG(there.st_mode)) return 0;
  if (S_ISLNK(there.st_mode)) return ELOOP;
  return S_ISDIR(there.st_mode) ? EISDIR : ENOTSUP;
}

// The path plus `.PID` and `.part`, rebuilt for each call so that no thread keeps it on its stack
// while the file is written.
struct PartPath {
  explicit PartPath(const char* path) noexcept {
    constexpr std::size_t most_behind = 32;
    if (std::strlen(path) + most_behind > sizeof text) return;
    Text part{text, sizeof text - 1};
    part.text(path);
    part.text(".");
    part.number(process_id());
    part.text(".part");
  }
  char text[PATH_MAX] = "";  // empty: too long
};

// A descriptor, or a negated errno value.
[[gnu::noinline]] int open_part(const char* path) noexcept {
  const PartPath part{path};
  if (part.text[0] == '\0') return -ENAMETOOLONG;
  if (const int error = error_at(path); error != 0) return -error;
  call(SYS_unlinkat, AT_FDCWD, part.text, 0);  // left by a process that ended early
  constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  return static_cast<int>(call(SYS_openat, AT_FDCWD, part.text, flags, 0600));
}

[[gnu::noinline]] void remove_part(const char* path) noexcept {
  call(SYS_unlinkat, AT_FDCWD, PartPath{path}.text, 0);
}

// 0, or an errno value.
[[gnu::noinline]] int rename_part(const char* path) noexcept {
  return static_cast<int>(-call(SYS_renameat2, AT_FDCWD, PartPath{path}.text, AT_FDCWD, path, 0));
}

// Ends a name at the end of its line.
void end_name(char* name, long bytes) noexcept {
  long length = 0;
  while (length < bytes && name[length] != '\n') ++length;
  name[length] = '\0';
}

}  // namespace

AtomicFile::AtomicFile(const char* path) noexcept : path_{path} {
  const int opened = open_part(path);
  if (opened < 0) {
    error_ = -opened;
    return;
  }
  descriptor_ = opened;
  takes_signals_ = !is_pending();
  call(SYS_rt_sigprocmask, SIG_BLOCK, &file_too_large, &signals_, sizeof signals_);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  close();
  remove_part(path_);
}

int AtomicFile::close() noexcept {
  const int closed = static_cast<int>(-call(SYS_close, descriptor_));
  descriptor_ = -1;
  if (takes_signals_) take_back();  // what a write sent to this thread
  call(SYS_rt_sigprocmask, SIG_SETMASK, &signals_, nullptr, sizeof signals_);
  return closed;
}

int AtomicFile::keep() noexcept {
  const int closed = close();
  const int error = closed != 0 ? closed : rename_part(path_);
  if (error != 0) remove_part(path_);
  return error;
}

ErrorText describe_error(int error) noexcept {
  ErrorText result = {};
  Text text{result.text, sizeof result.text - 1};
  switch (error) {
    case EACCES:
      text.text("permission denied");
      break;
    case ENOENT:
      text.text("no such directory");
      break;
    case ENOTDIR:
      text.text("part of the path is not a directory");
      break;
    case EISDIR:
      text.text("it is a directory");
      break;
    case ENOSPC:
      text.text("the disk is full");
      break;
    case EDQUOT:
      text.text("the disk quota is exceeded");
      break;
    case EROFS:
      text.text("the file system is read-only");
      break;
    case ENAMETOOLONG:
      text.text("the path is too long");
      break;
    case ELOOP:
      text.text("it is a symbolic link");
      break;
    case EEXIST:
      text.text("its .part is in the way");
      break;
    case ENOTSUP:
      text.text("it is a device, a pipe or a socket");
      break;
    case EFBIG:
      text.text("the file size limit (ulimit -f)");
      break;
    case ENOMEM:
      text.text("out of memory");
      break;
    default:
      text.text("error ");
      text.number(static_cast<std::uint64_t>(error));
  }
  return result;
}

void read_command(char* name, std::size_t size) noexcept {
  const long file = call(SYS_openat, AT_FDCWD, "/proc/self/comm", O_RDONLY | O_CLOEXEC, 0);
  end_name(name, file >= 0 ? call(SYS_read, file, name, size - 1) : 0);
  if (file >= 0) call(SYS_close, file);
}

void read_program(char* path, std::size_t size, const char* link) noexcept {
  const long length = call(SYS_readlinkat, AT_FDCWD, link, path, size - 1);
  path[length > 0 ? length : 0] = '\0';
  // Either the kernel's mark of a deleted file, or part of the name.
  constexpr char mark[] = " (deleted)";
  char* const end = path + std::strlen(path) - std::min(std::strlen(path), sizeof mark - 1);
  struct stat executed = {};
  struct stat named = {};
  if (std::string_view{end} != mark) return;
  if (call(SYS_newfstatat, AT_FDCWD, link, &executed, 0) == 0 &&
      call(SYS_newfstatat, AT_FDCWD, path, &named, 0) == 0 && executed.st_ino == named.st_ino &&
      executed.st_dev == named.st_dev)
    return;
  *end = '\0';
}

}  // namespace ts::os
