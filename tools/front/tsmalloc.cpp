// tsmalloc: the front door of an installation. It runs programs under an allocator, tells where the
// libraries are, explains the memory of processes, and starts the lab for every other verb.
//
// Why it exists: to use an allocator must cost no Python, no shell and no look-up of paths. One
// static file, copied beside the libraries, does it in any container. It finds its prefix by its
// own place, so that a prefix may be moved.
// What it refuses to do: know the lab's verbs, or search. Each library has one place.
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "explain/explain.h"
#include "front/fail.h"

namespace ts {

// The attribute makes the compiler check every call, which no function template could have.
// NOLINTNEXTLINE(cert-dcl50-cpp)
void fail(int status, const char* pattern, ...) {
  char line[2 * PATH_MAX];
  va_list arguments;
  va_start(arguments, pattern);
  // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is initialised, in the line above
  const int length = std::vsnprintf(line, sizeof line, pattern, arguments);
  va_end(arguments);
  dprintf(STDERR_FILENO, "tsmalloc: %s\n", length >= 0 ? line : pattern);
  _exit(status);
}

const char* tool_name() { return "tsmalloc"; }

namespace {

constexpr int exit_cannot_execute = 126;  // as shells say it
constexpr int exit_not_found = 127;

constexpr char how_to_get_lab[] =
    "install its package, tsmalloc-lab_*.deb, or the wheel tsmalloc-*.whl";
constexpr char help[] =
    R"(Usage: tsmalloc run [NAME] -- PROGRAM [ARGUMENT...]
       tsmalloc lib [NAME]
       tsmalloc explain PID
       tsmalloc top PID
       tsmalloc --version | --help
       tsmalloc VERB ...

  run   Run PROGRAM under the allocator NAME. It replaces this command.
  lib   Print the path of an allocator's library: LD_PRELOAD=$(tsmalloc lib) PROGRAM
  explain
        Say where the resident memory of a running process is.
  top   Show that again and again, and how it changes.
  VERB  Every other verb is the lab's, which compares allocators:
        %s

NAME is tsmalloc (the engine, and the default), secure (the hardened heap), or one of the lab's
teaching heaps, such as lock-best.

Exit status: 1 wrong usage; 2 a part of tsmalloc is missing; of `run` that of PROGRAM, 126 if
PROGRAM cannot be executed, 127 if it is not found.
)";

struct Path {
  char text[PATH_MAX];
};

Path join(const char* folder, const char* separator, const char* name) {
  Path joined;
  const int length =
      std::snprintf(joined.text, sizeof joined.text, "%s%s%s", folder, separator, name);
  if (length < 0 || static_cast<unsigned>(length) >= sizeof joined.text) {
    fail(exit_usage, "a path is too long: %.80s...%s%.80s", folder, separator, name);
  }
  return joined;
}

bool exists(const Path& path) { return access(path.text, F_OK) == 0; }

// The folder of the libraries, seen from that of this program.
Path library_folder() {
  Path self;
  const auto* const executed = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  if (realpath("/proc/self/exe", self.text) == nullptr &&  // a container may have no /proc
      (executed == nullptr || realpath(executed, self.text) == nullptr)) {
    fail(exit_missing, "cannot find its own place: mount /proc, or start it by its path");
  }
  *std::strrchr(self.text, '/') = '\0';
  Path folder = join(self.text, "/", TSMALLOC_LIBRARIES_FROM_PROGRAMS);
  Path resolved;
  if (realpath(folder.text, resolved.text) != nullptr) folder = resolved;
  return folder;  // if it does not exist, nothing in it does
}

// Becomes the lab, or returns if it is not there.
void start_lab(char** arguments) {
  const Path lab = join(library_folder().text, "/", "tsmalloc/tsmalloc-lab");
  if (!exists(lab)) return;
  execv(lab.text, arguments);
  fail(exit_missing, "the lab cannot be started: %s: %s; install its package again: %s", lab.text,
       strerrordesc_np(errno), how_to_get_lab);
}

// `run` and `lib` have options in the lab only.
void leave_option_to_lab(char** arguments) {
  if (arguments[2] == nullptr || arguments[2][0] != '-') return;
  start_lab(arguments);
  fail(exit_usage, "%s: the options of %s come with the lab: %s", arguments[2], arguments[1],
       how_to_get_lab);
}

bool is_teaching_heap(const char* name) {
  const char* const fit = std::strrchr(name, '-');
  return fit != nullptr && std::strchr(name, '/') == nullptr &&
         (std::strcmp(fit, "-first") == 0 || std::strcmp(fit, "-best") == 0 ||
          std::strcmp(fit, "-worst") == 0);
}

// The library of an allocator. What has none here may be one that the lab knows, and is its matter.
Path find_library(const char* name, char** arguments) {
  const Path folder = library_folder();
  const bool is_engine = std::strcmp(name, "tsmalloc") == 0;
  const bool is_secure =
      std::strcmp(name, "secure") == 0 || std::strcmp(name, "tsmalloc-secure") == 0;
  Path library;
  if (is_engine || is_secure) {
    library = join(folder.text, "/", is_engine ? TSMALLOC_ENGINE_FILE : TSMALLOC_SECURE_FILE);
    if (!exists(library)) {
      fail(exit_missing, "%s is missing: install the package libtsmalloc0 into this prefix",
           library.text);
    }
  } else {
    library = join(join(folder.text, "/tsmalloc/lib/libtsmalloc-", name).text, "", ".so");
    if (!is_teaching_heap(name) || !exists(library)) {
      start_lab(arguments);
      fail(exit_missing,
           "%s is no allocator of this installation, which has tsmalloc and secure; the lab brings "
           "and finds others: %s",
           name, how_to_get_lab);
    }
  }
  if (std::strpbrk(library.text, " \t\n\v\f\r:") != nullptr) {
    fail(exit_missing,
         "%s cannot be preloaded, since LD_PRELOAD ends a path at a space or a colon: move the "
         "installation to a folder without them",
         library.text);
  }
  return library;
}

// The file that a command starts: as given if it has a slash, else the first one on PATH.
Path find_program(const char* name) {
  if (*name == '\0') fail(exit_not_found, "the name of the program is empty");
  struct stat status;
  if (std::strchr(name, '/') != nullptr) {
    const Path path = join(name, "", "");
    if (stat(path.text, &status) != 0) {
      fail(errno == EACCES ? exit_cannot_execute : exit_not_found, "%s: %s", name,
           strerrordesc_np(errno));
    }
    if (S_ISDIR(status.st_mode)) fail(exit_cannot_execute, "%s is a folder", name);
    if (access(path.text, X_OK) != 0) {
      fail(exit_cannot_execute, "%s is not executable: chmod +x makes it so", name);
    }
    return path;
  }
  const char* folders = getenv("PATH");
  if (folders == nullptr) folders = "/bin:/usr/bin";
  Path not_executable{};
  for (const char* begin = folders; begin != nullptr;) {
    const char* const end = strchrnul(begin, ':');
    Path folder{};
    const auto length = static_cast<std::size_t>(end - begin);
    if (length < sizeof folder.text) std::memcpy(folder.text, begin, length);
    const Path path = join(length > 0 ? folder.text : ".", "/", name);
    if (stat(path.text, &status) == 0 && S_ISREG(status.st_mode)) {
      if (access(path.text, X_OK) == 0) return path;
      if (not_executable.text[0] == '\0') not_executable = path;
    }
    begin = *end == ':' ? end + 1 : nullptr;
  }
  if (not_executable.text[0] != '\0') {
    fail(exit_cannot_execute, "%s is not executable: chmod +x makes it so", not_executable.text);
  }
  fail(exit_not_found, "the program %s was not found on PATH: install it, or give its path", name);
}

// Whether a program of this machine's kind asks for no dynamic loader, which alone reads
// LD_PRELOAD. Of files of other kinds nothing is said.
bool is_static(const Path& program) {
  const int descriptor = open(program.text, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  ElfW(Ehdr) header;
  bool is_program = pread(descriptor, &header, sizeof header, 0) == sizeof header &&
                    std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                    header.e_ident[EI_CLASS] == (sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32) &&
                    header.e_phentsize == sizeof(ElfW(Phdr));
  for (unsigned i = 0; is_program && i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    const auto place = static_cast<off_t>(header.e_phoff + i * sizeof segment);
    is_program = pread(descriptor, &segment, sizeof segment, place) == sizeof segment &&
                 segment.p_type != PT_INTERP;
  }
  close(descriptor);
  return is_program;
}

void warn_if_in_vain(const Path& program) {
  struct stat status;
  if (stat(program.text, &status) != 0) return;
  // Without group execution S_ISGID has another, historic meaning.
  constexpr mode_t gains_group = S_ISGID | S_IXGRP;
  const char* reason = nullptr;
  if (is_static(program)) {
    reason = "is statically linked";
  } else if ((status.st_mode & S_ISUID) != 0 && status.st_uid != getuid()) {
    reason = "takes another user's rights at its start";
  } else if ((status.st_mode & gains_group) == gains_group && status.st_gid != getgid()) {
    reason = "takes another group's rights at its start";
  } else {
    return;
  }
  dprintf(STDERR_FILENO, "tsmalloc: warning: %s %s, so that nothing is preloaded into it\n",
          program.text, reason);
}

[[noreturn]] void run(char** arguments) {
  char** command = arguments + 2;
  const char* name = "tsmalloc";
  if (*command != nullptr && std::strcmp(*command, "--") != 0) leave_option_to_lab(arguments);
  if (*command != nullptr && std::strcmp(*command, "--") != 0) name = *command++;
  if (*command != nullptr && std::strcmp(*command, "--") == 0) ++command;
  if (*command == nullptr) {
    fail(exit_usage, "no program is named: tsmalloc run [NAME] -- PROGRAM [ARGUMENT...]");
  }
  const Path library = find_library(name, arguments);
  const Path program = find_program(*command);
  warn_if_in_vain(program);
  const char* present = getenv("LD_PRELOAD");
  if (present == nullptr) present = "";
  char* preload = nullptr;
  if (asprintf(&preload, "%s%s%s", library.text, *present == '\0' ? "" : ":", present) < 0 ||
      setenv("LD_PRELOAD", preload, 1) != 0) {
    fail(exit_missing, "LD_PRELOAD cannot be set: %s", strerrordesc_np(errno));
  }
  execv(program.text, command);
  const int error = errno;
  if (error == ENOENT) {
    fail(exit_cannot_execute, "%s: the interpreter or dynamic loader that it names does not exist",
         program.text);
  }
  fail(exit_cannot_execute, "%s: %s%s", program.text, strerrordesc_np(error),
       error == ENOEXEC ? "; a script's first line names its interpreter (#!/bin/sh)" : "");
}

int print(const char* text) {
  if (dprintf(STDOUT_FILENO, "%s\n", text) < 0) {
    fail(exit_usage, "the answer cannot be written: %s", strerrordesc_np(errno));
  }
  return 0;
}

int print_library(char** arguments) {
  const char* const name = arguments[2] != nullptr ? arguments[2] : "tsmalloc";
  leave_option_to_lab(arguments);
  if (arguments[2] != nullptr && arguments[3] != nullptr) {
    fail(exit_usage, "one name is enough: tsmalloc lib [NAME]");
  }
  return print(find_library(name, arguments).text);
}

}  // namespace
}  // namespace ts

int main(int, char** arguments) {
  using namespace ts;
  const char* const verb = arguments[0] != nullptr ? arguments[1] : nullptr;
  const auto is = [verb](const char* word) { return std::strcmp(verb, word) == 0; };
  if (verb == nullptr) {
    dprintf(STDERR_FILENO, help, how_to_get_lab);
    return exit_usage;
  }
  if (is("run")) run(arguments);
  if (is("lib")) return print_library(arguments);
  if (is("explain")) return explain(arguments + 2);
  if (is("top")) return top(arguments + 2);
  if (is("--version") || is("-V")) return print("tsmalloc, version " TSMALLOC_VERSION_TEXT);
  start_lab(arguments);
  if (is("--help") || is("-h")) {
    return dprintf(STDOUT_FILENO, help, how_to_get_lab) < 0 ? exit_usage : 0;
  }
  fail(exit_missing, "%s is a verb of the lab, or none; the lab is not installed: %s", verb,
       how_to_get_lab);
}
