// System calls and C library hooks of os/counting.h. As in linux.cpp, interpreting failures is left
// to the caller.
#include "os/counting.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <initializer_list>

// From the C++ ABI; without a library's handle the function stays registered until the very end.
extern "C" int __cxa_atexit(void (*function)(void*), void* argument, void* library) noexcept;

namespace ts::os {
namespace {

constexpr unsigned copy_seconds = 2;

constinit char buffer[64 * 1024];

// A path built from pieces; if it is too long, it is truncated and opens nothing.
struct Path {
  char text[PATH_MAX] = {};
  std::size_t length = 0;

  void add(const char* piece) noexcept {
    for (; *piece != '\0' && length < sizeof text - 1; ++piece) text[length++] = *piece;
    text[length] = '\0';
  }
  void add(std::uint64_t number) noexcept;
};

// The decimal digits of a number, at the end of `digits`.
const char* digits_of(std::uint64_t number, char (&digits)[21]) noexcept {
  char* at = digits + sizeof digits - 1;
  *at = '\0';
  do {
    *--at = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  return at;
}

void Path::add(std::uint64_t number) noexcept {
  char digits[21];
  add(digits_of(number, digits));
}

void name_unfinished(const char* folder, std::uint64_t process, Path& path) noexcept {
  path.add(folder);
  path.add("/.");
  path.add(process);
  path.add(".unfinished");
}

}  // namespace

bool make_absolute(const char* path, char* absolute, std::size_t capacity) noexcept {
  std::size_t length = 0;
  if (path[0] != '/') {
    if (::getcwd(absolute, capacity) == nullptr) return false;
    length = std::strlen(absolute);
    if (length + 1 < capacity) absolute[length++] = '/';
  }
  const std::size_t more = std::strlen(path) + 1;
  if (more > capacity - length) return false;
  std::memcpy(absolute + length, path, more);
  return true;
}

bool call_at_process_exit(void (*at_exit)(void*)) noexcept {
  return __cxa_atexit(at_exit, nullptr, nullptr) == 0;
}

bool call_in_forked_child(void (*child)()) noexcept {
  return ::pthread_atfork(nullptr, nullptr, child) == 0;
}

void end_process(int status) noexcept {
  for (;;) ::syscall(SYS_exit_group, status);
}

bool run_in_copy(bool (*look)(void*), void* argument) noexcept {
  // Not fork(), whose handlers would change the heap. The copy's exit sends the program no signal,
  // and none of its waits sees it (clone(2), __WCLONE).
  const long copy = ::syscall(SYS_clone, 0UL, nullptr, nullptr, nullptr, 0UL);
  if (copy < 0) return false;
  if (copy == 0) {
    ::prctl(PR_SET_DUMPABLE, 0);  // no core file if it crashes
    for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGALRM})
      static_cast<void>(::signal(signal, SIG_DFL));
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::alarm(copy_seconds);
    end_process(look(argument) ? 0 : 1);
  }
  int status = 0;
  while (::waitpid(static_cast<pid_t>(copy), &status, static_cast<int>(__WCLONE)) < 0) {
    if (errno != EINTR) return false;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TextFile::TextFile(const char* folder, std::uint64_t process) noexcept
    : folder_{folder}, process_{process} {
  Path path;
  name_unfinished(folder_, process_, path);
  descriptor_ = ::open(path.text, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  failed_ = descriptor_ < 0;
}

TextFile::~TextFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  Path path;
  name_unfinished(folder_, process_, path);
  ::unlink(path.text);
}

void TextFile::text(const char* zero_terminated) noexcept {
  append(zero_terminated, std::strlen(zero_terminated));
}

void TextFile::number(std::uint64_t value) noexcept {
  char digits[21];
  text(digits_of(value, digits));
}

void TextFile::quoted(const char* zero_terminated) noexcept {
  append("\"", 1);
  for (const char* at = zero_terminated; *at != '\0'; ++at) {
    const auto byte = static_cast<unsigned char>(*at);
    if (byte == '"' || byte == '\\') append("\\", 1);
    if (byte < ' ') {
      const char escaped[] = {'\\', 'u', '0', '0', "01"[byte >> 4], "0123456789abcdef"[byte & 15]};
      append(escaped, sizeof escaped);
    } else {
      append(at, 1);
    }
  }
  append("\"", 1);
}

bool TextFile::publish(std::uint64_t first_number, const char* suffix) noexcept {
  flush();
  if (failed_) return false;
  Path unfinished;
  name_unfinished(folder_, process_, unfinished);
  constexpr std::uint64_t most_tries = 100'000;
  for (std::uint64_t number = first_number; number < first_number + most_tries; ++number) {
    Path path;
    path.add(folder_);
    path.add("/");
    path.add(process_);
    if (number != 0) path.add("-");
    if (number != 0) path.add(number);
    path.add(suffix);
    if (::link(unfinished.text, path.text) == 0) return true;
    if (errno == EEXIST) continue;
    // The file system has no hard links: replaces another process's file with this number.
    return ::rename(unfinished.text, path.text) == 0;
  }
  return false;
}

void TextFile::append(const char* bytes, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    if (buffered_ == sizeof buffer) flush();
    buffer[buffered_++] = bytes[i];
  }
}

void TextFile::flush() noexcept {
  for (std::size_t done = 0; done < buffered_ && !failed_;) {
    const ssize_t written = ::write(descriptor_, buffer + done, buffered_ - done);
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
    } else {
      failed_ = errno != EINTR;
    }
  }
  buffered_ = 0;
}

}  // namespace ts::os
