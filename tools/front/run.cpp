// Finds the libraries, the lab and programs, and runs a program; see run.h.
#include "front/run.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "front/fail.h"

namespace ts {
namespace {

constexpr int exit_cannot_execute = 126;  // as shells spell it
constexpr int exit_not_found = 127;
// The lab's variable (lab/tsmlab/paths.py), for `top` and `profile`: the path of the engine's
// library.
constexpr char library_variable[] = "TSMALLOC_LIBRARY_OF_LAB";

Path join(const char* folder, const char* separator, const char* name) {
  Path joined;
  const int length =
      std::snprintf(joined.text, sizeof joined.text, "%s%s%s", folder, separator, name);
  if (length < 0 || static_cast<unsigned>(length) >= sizeof joined.text) {
    fail(exit_usage, "path too long: %.80s...%s%.80s", folder, separator, name);
  }
  return joined;
}

bool exists(const Path& path) { return access(path.text, F_OK) == 0; }

// The directory of the libraries, relative to this program's.
Path library_folder() {
  Path self;
  const auto* const executed = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  if (realpath("/proc/self/exe", self.text) == nullptr &&  // a container may have no /proc
      (executed == nullptr || realpath(executed, self.text) == nullptr)) {
    fail(exit_missing, "cannot find its own location: mount /proc, or start it by its path");
  }
  *std::strrchr(self.text, '/') = '\0';
  Path folder = join(self.text, "/", TSMALLOC_LIBRARIES_FROM_PROGRAMS);
  Path resolved;
  if (realpath(folder.text, resolved.text) != nullptr) folder = resolved;
  return folder;  // if it does not exist, nothing in it does
}

bool is_teaching_heap(const char* name) {
  const char* const fit = std::strrchr(name, '-');
  return fit != nullptr && std::strchr(name, '/') == nullptr &&
         (std::strcmp(fit, "-first") == 0 || std::strcmp(fit, "-best") == 0 ||
          std::strcmp(fit, "-worst") == 0);
}

// The file that a command starts: as given if it has a slash, otherwise the first one on PATH.
Path find_program(const char* name) {
  if (*name == '\0') fail(exit_not_found, "program name is empty");
  struct stat status;
  if (std::strchr(name, '/') != nullptr) {
    const Path path = join(name, "", "");
    if (stat(path.text, &status) != 0) {
      fail(errno == EACCES ? exit_cannot_execute : exit_not_found, "%s: %s", name,
           strerrordesc_np(errno));
    }
    if (S_ISDIR(status.st_mode)) fail(exit_cannot_execute, "%s is a directory", name);
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
  fail(exit_not_found, "%s: command not found on PATH: install it, or give its path", name);
}

// Whether a program's notes, this many bytes at this offset, include the engine's
// (engine/inspection.h).
bool has_engine(int descriptor, const ElfW(Phdr) & notes) {
  char bytes[4096];
  const std::size_t maximum = notes.p_filesz < sizeof bytes ? notes.p_filesz : sizeof bytes;
  const ssize_t count = pread(descriptor, bytes, maximum, static_cast<off_t>(notes.p_offset));
  constexpr char name[] = "tsmalloc";
  return count > 0 && memmem(bytes, static_cast<std::size_t>(count), name, sizeof name) != nullptr;
}

// Whether a program for this machine asks for no dynamic loader, which is what reads LD_PRELOAD,
// and contains no engine. False for files of other kinds.
bool is_static_without_engine(const Path& program) {
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
                 segment.p_type != PT_INTERP &&
                 !(segment.p_type == PT_NOTE && has_engine(descriptor, segment));
  }
  close(descriptor);
  return is_program;
}

// The privileges that a program gains at its start; null if none.
const char* privilege_of(const Path& program) {
  struct stat status;
  if (stat(program.text, &status) != 0) return nullptr;
  // Without group execute permission S_ISGID has another, historic meaning.
  constexpr mode_t gains_group = S_ISGID | S_IXGRP;
  if ((status.st_mode & S_ISUID) != 0 && status.st_uid != getuid()) return "is setuid";
  if ((status.st_mode & gains_group) == gains_group && status.st_gid != getgid())
    return "is setgid";
  return nullptr;
}

void warn_if_not_preloadable(const Path& program) {
  const char* reason = privilege_of(program);
  if (is_static_without_engine(program)) reason = "is statically linked";
  if (reason == nullptr) return;
  dprintf(STDERR_FILENO, "tsmalloc: warning: %s %s, so nothing can be preloaded into it\n",
          program.text, reason);
}

}  // namespace

void start_lab(char** arguments) {
  const Path lab = join(library_folder().text, "/", "tsmalloc/tsmalloc-lab");
  if (!exists(lab)) return;
  execv(lab.text, arguments);
  fail(exit_missing, "cannot start the lab: %s: %s; reinstall its package: %s", lab.text,
       strerrordesc_np(errno), how_to_get_lab);
}

void leave_option_to_lab(char** arguments) {
  if (arguments[2] == nullptr || arguments[2][0] != '-') return;
  start_lab(arguments);
  fail(exit_usage, "%s: options of %s need the lab: %s", arguments[2], arguments[1],
       how_to_get_lab);
}

Path find_library(const char* name, char** arguments) {
  const Path folder = library_folder();
  const bool is_engine = std::strcmp(name, "tsmalloc") == 0;
  const bool is_secure =
      std::strcmp(name, "secure") == 0 || std::strcmp(name, "tsmalloc-secure") == 0;
  Path library;
  // The lab knows what names can be preloaded, and where a wheel or a checkout keeps its libraries.
  const char* const given = is_engine ? getenv(library_variable) : nullptr;
  if (given != nullptr) {
    library = join(given, "", "");
    unsetenv(library_variable);
  } else if (is_engine || is_secure) {
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
           "unknown allocator %s; installed are tsmalloc and secure, and the lab adds "
           "others: %s",
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

bool is_privileged(const char* command) { return privilege_of(find_program(command)) != nullptr; }

void run_under(const char* name, char** command, char** arguments) {
  const Path library = find_library(name, arguments);
  const Path program = find_program(*command);
  warn_if_not_preloadable(program);
  const char* present = getenv("LD_PRELOAD");
  if (present == nullptr) present = "";
  char* preload = nullptr;
  if (asprintf(&preload, "%s%s%s", library.text, *present == '\0' ? "" : ":", present) < 0 ||
      setenv("LD_PRELOAD", preload, 1) != 0) {
    fail(exit_missing, "cannot set LD_PRELOAD: %s", strerrordesc_np(errno));
  }
  execv(program.text, command);
  const int error = errno;
  if (error == ENOENT) {
    fail(exit_cannot_execute, "%s: its interpreter or dynamic loader does not exist", program.text);
  }
  fail(exit_cannot_execute, "%s: %s%s", program.text, strerrordesc_np(error),
       error == ENOEXEC ? "; a script's first line names its interpreter (#!/bin/sh)" : "");
}

void run(char** arguments) {
  char** command = arguments + 2;
  const char* name = "tsmalloc";
  if (*command != nullptr && std::strcmp(*command, "--") != 0) leave_option_to_lab(arguments);
  if (*command != nullptr && std::strcmp(*command, "--") != 0) name = *command++;
  if (*command != nullptr && std::strcmp(*command, "--") == 0) ++command;
  if (*command == nullptr) {
    fail(exit_usage, "no program given: tsmalloc run [NAME] -- PROGRAM [ARGUMENT...]");
  }
  run_under(name, command, arguments);
}

}  // namespace ts
