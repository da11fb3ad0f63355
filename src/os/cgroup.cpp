#include "os/cgroup.h"

#include <fcntl.h>
#include <sys/sysinfo.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>

#include "os/options.h"
#include "os/os.h"
#include "os/system_call.h"

namespace ts::os {
namespace {

constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
// Version 1 has no word for "none", just a number near 2^63.
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 60;

// A path; empty if it is too long.
struct FolderPath {
  char text[sizeof Cgroup::folder + 32] = "";
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

// Reads the lines of a file with a small buffer, since thread stacks may be small. The rest of a
// line that is too long counts as another line.
class LinesOfFile {
 public:
  explicit LinesOfFile(const char* path) noexcept
      : file_{call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC)} {}
  ~LinesOfFile() {
    if (file_ >= 0) call(SYS_close, file_);
  }
  LinesOfFile(const LinesOfFile&) = delete;
  LinesOfFile& operator=(const LinesOfFile&) = delete;

  // The next line without its newline, valid until the next call; null at the end.
  const char* next() noexcept {
    std::memmove(text_, text_ + begin_, length_ - begin_);
    length_ -= begin_;
    if (std::memchr(text_, '\n', length_) == nullptr) fill();
    if (length_ == 0) return nullptr;
    const void* const end = std::memchr(text_, '\n', length_);
    const std::size_t bytes =
        end != nullptr ? static_cast<std::size_t>(static_cast<const char*>(end) - text_) : length_;
    text_[bytes] = '\0';
    begin_ = end != nullptr ? bytes + 1 : bytes;
    return text_;
  }

 private:
  void fill() noexcept {
    while (file_ >= 0 && length_ < sizeof text_ - 1) {
      const long bytes = call(SYS_read, file_, text_ + length_, sizeof text_ - 1 - length_);
      if (bytes <= 0) break;
      length_ += static_cast<std::size_t>(bytes);
    }
  }

  const long file_;
  std::size_t begin_ = 0;  // of the next line
  std::size_t length_ = 0;
  char text_[sizeof FolderPath::text];
};

// The number that is the whole text; no_limit if it is none, or larger than any memory.
std::size_t number_in(const char* text) noexcept {
  if (*text < '0' || *text > '9') return no_limit;
  std::uint64_t number = 0;
  for (; *text >= '0' && *text <= '9'; ++text) {
    number = number * 10 + static_cast<unsigned>(*text - '0');
    if (number > most_bytes) return no_limit;
  }
  return *text == '\0' ? number : no_limit;
}

std::size_t number_of_file(const char* folder, const char* name) noexcept {
  FolderPath path;
  path.append(folder);
  path.append(name);
  if (!path.is_whole()) return no_limit;
  LinesOfFile lines{path.text};
  const char* const line = lines.next();
  return line != nullptr ? number_in(line) : no_limit;
}

// The first occurrence of the letter, or the end of the text.
const char* up_to(const char* text, char letter) noexcept {
  while (*text != letter && *text != '\0') ++text;
  return text;
}

// Whether "memory" is among the words up to `end`, which are separated by commas.
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

// The process's group, as the hierarchy shows it.
struct Membership {
  FolderPath path;  // empty: none
  bool is_version_1 = false;
};

// Lines are "id:controllers:path". A version 1 line with the memory controller wins, since version
// 2, whose line is "0::path", does not have that controller then.
void read_membership(LinesOfFile& lines, Membership& found) noexcept {
  while (!found.is_version_1) {
    const char* const line = lines.next();
    if (line == nullptr) break;
    const char* const first = up_to(line, ':');
    const char* const second = *first != '\0' ? up_to(first + 1, ':') : first;
    if (*second == '\0') continue;
    found.is_version_1 = has_memory(first + 1, second);
    if (!found.is_version_1 && second != first + 1) continue;
    found.path.cut(0);
    found.path.append(second + 1);
  }
}

// Whether the path leaves what is visible, like that of a process that was moved out of its
// namespace.
bool leads_out(const Membership& member) noexcept {
  return std::strstr(member.path.text, "/..") != nullptr;
}

std::size_t limit_of(const char* folder, bool is_version_1) noexcept {
  if (is_version_1) return number_of_file(folder, "/memory.limit_in_bytes");
  const std::size_t most = number_of_file(folder, "/memory.max");
  const std::size_t high = number_of_file(folder, "/memory.high");
  return high < most ? high : most;
}

// Finds a line "KEY NUMBER"; no_limit if there is none.
std::size_t number_of_key(LinesOfFile& lines, const char* key) noexcept {
  const std::size_t length = std::strlen(key);
  while (const char* const line = lines.next()) {
    if (std::strncmp(line, key, length) == 0 && line[length] == ' ')
      return number_in(line + length + 1);
  }
  return no_limit;
}

}  // namespace

// Walks from the group up to the root of what is mounted. In a container that sees the host's path
// but has its own group mounted, the folders of that path do not exist, and the root is the group.
bool find_cgroup(const char* root, Cgroup& group) noexcept {
  group = {};
  FolderPath path;
  path.append(root);
  path.append("/proc/self/cgroup");
  if (!path.is_whole()) return false;
  Membership member;
  {
    LinesOfFile lines{path.text};
    read_membership(lines, member);
  }
  if (!member.path.is_whole()) return false;
  path.cut(0);
  path.append(root);
  path.append(member.is_version_1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup");
  const std::size_t top = path.length;
  if (member.path.length > 1 && !leads_out(member)) path.append(member.path.text);
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

std::size_t used_by(const Cgroup& group, std::size_t enough) noexcept {
  const char* const name = group.is_version_1 ? "/memory.usage_in_bytes" : "/memory.current";
  const std::size_t used = number_of_file(group.folder, name);
  if (used == no_limit) return 0;
  if (used <= enough) return used;
  FolderPath path;
  path.append(group.folder);
  path.append("/memory.stat");
  if (!path.is_whole()) return used;
  LinesOfFile lines{path.text};
  const std::size_t dropped =
      number_of_key(lines, group.is_version_1 ? "total_inactive_file" : "inactive_file");
  return dropped < used ? used - dropped : used;
}

namespace {

// False if the kernel does not say.
bool ask_system(struct sysinfo& system) noexcept { return call(SYS_sysinfo, &system) == 0; }

}  // namespace

std::size_t machine_memory() noexcept {
  struct sysinfo system {};
  return ask_system(system) ? std::size_t{system.totalram} * system.mem_unit : 0;
}

namespace {

// relaxed: set before the program runs
constinit std::atomic<bool> counts_all{false};

}  // namespace

bool counts_all_memory() noexcept { return counts_all.load(std::memory_order_relaxed); }

void find_memory_rule() noexcept {
  constexpr std::size_t strict = 2;
  const bool is_strict = number_of_file("/proc/sys/vm", "/overcommit_memory") == strict;
  counts_all.store(is_strict || assumes_strict_overcommit.load(std::memory_order_relaxed),
                   std::memory_order_relaxed);
}

bool exceeds_machine(std::size_t bytes) noexcept {
  constexpr std::size_t every_machine_has = std::size_t{1} << 30;
  struct sysinfo system {};
  if (bytes < every_machine_has || !ask_system(system)) return false;
  return bytes / system.mem_unit > system.totalram + system.totalswap;
}

}  // namespace ts::os
