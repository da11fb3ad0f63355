#include "os/memory_group.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>

namespace ts::os {
namespace {

constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
// Version 1 has no word for "none", but a number near the end of 63 bits.
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 60;

// A path, which is empty if it is too long.
struct FolderPath {
  char text[sizeof MemoryGroup::folder + 32];
  std::size_t length = 0;

  void append(const char* begin, std::size_t bytes) noexcept {
    if (length + bytes >= sizeof text) return fail();
    std::memcpy(text + length, begin, bytes);
    length += bytes;
    text[length] = '\0';
  }
  void append(const char* more) noexcept { append(more, std::strlen(more)); }
  void cut(std::size_t to) noexcept { text[length = to] = '\0'; }
  void fail() noexcept { cut(0); }
  bool is_whole() const noexcept { return length != 0; }
};

// The beginning of a file, as far as there is room for it, and a zero; false without any.
template <std::size_t size>
bool read_text(const char* path, char (&text)[size]) noexcept {
  const int kept = errno;
  const long file = ::syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  std::size_t length = 0;
  while (file >= 0 && length < size - 1) {
    const long bytes = ::syscall(SYS_read, file, text + length, size - 1 - length);
    if (bytes <= 0) break;
    length += static_cast<std::size_t>(bytes);
  }
  if (file >= 0) ::syscall(SYS_close, file);
  text[length] = '\0';
  errno = kept;
  return length != 0;
}

// The number that a text begins with; no_limit if it is none, or is beyond all memory.
std::size_t number_in(const char* text) noexcept {
  if (*text < '0' || *text > '9') return no_limit;
  std::uint64_t number = 0;
  for (; *text >= '0' && *text <= '9'; ++text) {
    number = number * 10 + static_cast<unsigned>(*text - '0');
    if (number > most_bytes) return no_limit;
  }
  return *text == '\n' || *text == '\0' ? number : no_limit;
}

std::size_t number_of_file(const char* folder, const char* name) noexcept {
  FolderPath path;
  path.append(folder);
  path.append(name);
  char text[64];
  return path.is_whole() && read_text(path.text, text) ? number_in(text) : no_limit;
}

// Up to the letter, or to the end of the line or text.
const char* up_to(const char* text, char letter) noexcept {
  while (*text != letter && *text != '\n' && *text != '\0') ++text;
  return text;
}

// Whether one of the words, with commas between them, up to `end`, is "memory".
bool has_memory(const char* words, const char* end) noexcept {
  constexpr char wanted[] = "memory";
  constexpr std::size_t length = sizeof wanted - 1;
  for (const char* word = words; word < end; ++word) {
    const char* comma = word;
    while (comma < end && *comma != ',') ++comma;
    if (comma == word + length && std::memcmp(word, wanted, length) == 0) return true;
    word = comma;
  }
  return false;
}

// The group of the process as the hierarchy sees it. Lines are "id:controllers:path". One of version
// 1 that names the memory controller wins: then version 2, whose line is "0::path", does not have
// it.
struct Membership {
  const char* path = nullptr;  // up to the end of the line; null: none
  std::size_t length = 0;
  bool is_version_1 = false;
};

Membership membership_in(const char* lines) noexcept {
  Membership found;
  for (const char* line = lines; *line != '\0' && !found.is_version_1;) {
    const char* const end = up_to(line, '\n');
    const char* const controllers = up_to(line, ':') + 1;
    const char* const path = controllers < end ? up_to(controllers, ':') + 1 : end;
    if (path < end) {
      const bool is_version_1 = has_memory(controllers, path - 1);
      if (is_version_1 || path == controllers + 1)
        found = {path, static_cast<std::size_t>(end - path), is_version_1};
    }
    line = *end == '\0' ? end : end + 1;
  }
  return found;
}

// Whether a path leads out of what is visible, as that of a process that was moved out of its
// namespace does.
bool leads_out(const Membership& member) noexcept {
  for (std::size_t i = 0; i + 3 <= member.length; ++i) {
    if (std::memcmp(member.path + i, "/..", 3) == 0) return true;
  }
  return false;
}

std::size_t limit_of(const char* folder, bool is_version_1) noexcept {
  if (is_version_1) return number_of_file(folder, "/memory.limit_in_bytes");
  const std::size_t most = number_of_file(folder, "/memory.max");
  const std::size_t high = number_of_file(folder, "/memory.high");
  return high < most ? high : most;
}

// Behind a word at the beginning of a line, and a space; null if there is none.
const char* value_behind(const char* lines, const char* word) noexcept {
  const std::size_t length = std::strlen(word);
  for (const char* line = lines; *line != '\0';) {
    const char* const end = up_to(line, '\n');
    const bool is_wanted = static_cast<std::size_t>(end - line) > length && line[length] == ' ' &&
                           std::memcmp(line, word, length) == 0;
    if (is_wanted) return line + length + 1;
    line = *end == '\0' ? end : end + 1;
  }
  return nullptr;
}

}  // namespace

// From the group up to the root of what is mounted. In a container that sees the host's path but has
// its own group mounted, the folders of that path are missing, and the root is the group.
bool find_memory_group(const char* root, MemoryGroup& group) noexcept {
  group = {};
  FolderPath path;
  path.append(root);
  path.append("/proc/self/cgroup");
  char text[8192];
  if (!path.is_whole() || !read_text(path.text, text)) return false;
  const Membership member = membership_in(text);
  if (member.path == nullptr) return false;
  path.cut(0);
  path.append(root);
  path.append(member.is_version_1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup");
  const std::size_t top = path.length;
  if (member.length > 1 && !leads_out(member)) path.append(member.path, member.length);
  std::size_t smallest = no_limit;
  while (path.is_whole() && path.length < sizeof group.folder) {
    const std::size_t limit = limit_of(path.text, member.is_version_1);
    if (limit != 0 && limit < smallest) {
      smallest = limit;
      std::memcpy(group.folder, path.text, path.length + 1);
    }
    if (path.length <= top) break;
    std::size_t parent = path.length - 1;
    while (parent > top && path.text[parent] != '/') --parent;
    path.cut(parent);
  }
  if (smallest == no_limit) return false;
  group.limit_bytes = smallest;
  group.is_version_1 = member.is_version_1;
  return true;
}

std::size_t used_by(const MemoryGroup& group, std::size_t enough) noexcept {
  const char* const name = group.is_version_1 ? "/memory.usage_in_bytes" : "/memory.current";
  const std::size_t used = number_of_file(group.folder, name);
  if (used == no_limit) return 0;
  if (used <= enough) return used;
  FolderPath path;
  path.append(group.folder);
  path.append("/memory.stat");
  char text[4096];
  if (!path.is_whole() || !read_text(path.text, text)) return used;
  const char* const value =
      value_behind(text, group.is_version_1 ? "total_inactive_file" : "inactive_file");
  const std::size_t dropped = value != nullptr ? number_in(value) : no_limit;
  return dropped < used ? used - dropped : used;
}

std::size_t machine_memory() noexcept {
  struct sysinfo system {};
  const int kept = errno;
  const bool is_told = ::syscall(SYS_sysinfo, &system) == 0;
  errno = kept;
  return is_told ? std::size_t{system.totalram} * system.mem_unit : 0;
}

}  // namespace ts::os
