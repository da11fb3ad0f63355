// See frames.h. Nothing here allocates.
#include "replay/frames.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "common/system.h"
#include "replay/pages.h"

namespace ts::replay {
namespace {

constexpr std::uint64_t heading = UINT64_MAX;  // where a line has the end of its range

struct Pair {
  std::uint64_t first;
  std::uint64_t second;
};
Pair pairs[4096];
std::uint64_t entries_of_pages[8192];

// Whether a line of smaps begins a mapping, and if so whether that is private anonymous memory,
// other than the system's stacks.
bool begins_mapping(const char* line, Pair& range, bool& is_wanted) {
  char* rest = nullptr;
  const std::uint64_t begin = std::strtoull(line, &rest, 16);
  if (rest == line || *rest != '-') return false;
  range = {begin, std::strtoull(rest + 1, &rest, 16)};
  char* device = nullptr;
  const bool is_private = std::strlen(rest) > 4 && rest[4] == 'p';
  (void)std::strtoull(rest + 5, &device, 16);  // the offset
  const char* const inode = std::strchr(device + 1, ' ');
  is_wanted = is_private && inode != nullptr && std::strtoull(inode, nullptr, 10) == 0 &&
              std::strstr(line, "[stack]") == nullptr && std::strstr(line, "[v") == nullptr;
  return true;
}

// Loaded objects are not part of the heap, except the library that provides malloc.
template <class Put>
void for_each_loaded(Put put) {
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* context) {
        Dl_info of_malloc = {};
        (void)dladdr(reinterpret_cast<void*>(&std::malloc), &of_malloc);
        if (reinterpret_cast<std::uintptr_t>(of_malloc.dli_fbase) == object->dlpi_addr) return 0;
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const auto& part = object->dlpi_phdr[i];
          if (part.p_type != PT_LOAD) continue;
          const std::uint64_t page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) - 1;
          const std::uint64_t begin = object->dlpi_addr + part.p_vaddr;
          (*static_cast<Put*>(context))(begin & ~page, (begin + part.p_memsz + page) & ~page);
        }
        return 0;
      },
      &put);
}

}  // namespace

int Frames::open(const char* path, std::uint64_t count, std::uint64_t entries) {
  if (count == 0) return 0;
  char name[PATH_MAX];
  format(name, sizeof name, "%s.frames", path);
  file_ = ::open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  pagemap_ = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (file_ < 0 || pagemap_ < 0) return errno;
  every_ = std::max<std::uint64_t>(1, entries / count);
  return 0;
}

void Frames::put(std::uint64_t first, std::uint64_t second) {
  pairs[used_++] = {first, second};
  if (used_ == std::size(pairs)) flush();
}

void Frames::flush() {
  if (const int error = write_all(file_, pairs, used_ * sizeof(Pair))) error_ = error;
  used_ = 0;
}

void Frames::take(std::uint64_t entry) {
  put(entry, heading);
  PieceReader lines{"/proc/self/smaps"};
  if (!lines.is_open()) error_ = errno;
  Pair range = {};
  bool is_wanted = false;
  while (const char* const line = lines.next('\n')) {
    if (begins_mapping(line, range, is_wanted)) continue;
    if (is_wanted && number_after(line, "Rss:") > 0) look_up(range.first, range.second);
  }
  flush();
}

void Frames::look_up(std::uint64_t begin, std::uint64_t end) {
  constexpr std::uint64_t present = std::uint64_t{1} << 63;
  constexpr std::uint64_t exclusive = std::uint64_t{1} << 56;
  constexpr std::uint64_t word = sizeof entries_of_pages[0];
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::uint64_t run = 0;  // where the present pages begin; 0: the previous ones are absent
  while (begin < end) {
    const std::uint64_t wanted =
        std::min<std::uint64_t>((end - begin) / page, std::size(entries_of_pages));
    const ssize_t got =
        pread(pagemap_, entries_of_pages, wanted * word, static_cast<off_t>(begin / page * word));
    if (got <= 0) {
      if (got < 0) error_ = errno;
      break;
    }
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(got) / word; ++i, begin += page) {
      // The zero page, which all processes share, is present, but belongs to nobody.
      const bool is_there =
          (entries_of_pages[i] & present) != 0 && (entries_of_pages[i] & exclusive) != 0;
      if (is_there && run == 0) run = begin;
      if (!is_there && run != 0) put(std::exchange(run, 0), begin);
    }
  }
  if (run != 0) put(run, begin);
}

int Frames::close(std::uint64_t entries) {
  if (every_ == 0) return 0;
  take(entries);
  put(heading, heading);
  for (const PageRange& own : own_ranges()) put(own.begin, own.end);
  for_each_loaded([this](std::uint64_t begin, std::uint64_t end) { put(begin, end); });
  flush();
  ::close(pagemap_);
  return ::close(file_) != 0 ? errno : error_;
}

}  // namespace ts::replay
