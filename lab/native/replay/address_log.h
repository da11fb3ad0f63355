// Records which addresses a replay got and freed, in which order, and which pages were resident at
// some moments; from these the lab draws the heap over time. docs/formats/trace.md describes both
// files. The log is mapped, and none of it is anonymous memory, which replay measures.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "common/system.h"
#include "replay/memory.h"

namespace ts::replay {

inline constexpr std::uint64_t heading = UINT64_MAX;  // where a line has the end of its range

struct Pair {
  std::uint64_t first;
  std::uint64_t second;
};
inline Pair pairs[4096];
inline std::uint64_t entries_of_pages[8192];

// Whether a line of smaps begins a mapping, and if so whether that is private anonymous memory,
// other than the system's stacks.
inline bool begins_mapping(const char* line, Pair& range, bool& is_wanted) {
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
inline void for_each_loaded(Put put) {
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

class Frames {
 public:
  // path: of the addresses; the frames go into PATH.frames. entries: the number of addresses to
  // come. Returns an error number.
  int open(const char* path, std::uint64_t count, std::uint64_t entries) {
    if (count == 0) return 0;
    char name[PATH_MAX];
    format(name, sizeof name, "%s.frames", path);
    file_ = ::open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    pagemap_ = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (file_ < 0 || pagemap_ < 0) return errno;
    every_ = std::max<std::uint64_t>(1, entries / count);
    return 0;
  }

  bool is_due(std::uint64_t entry) const { return every_ != 0 && entry % every_ == 0; }

  // Call before writing the entry of this number, from the one running thread.
  void take(std::uint64_t entry) {
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

  // With a last frame, and replay's own memory.
  int close(std::uint64_t entries) {
    if (every_ == 0) return 0;
    take(entries);
    put(heading, heading);
    for (const PageRange& own : own_ranges()) put(own.begin, own.end);
    for_each_loaded([this](std::uint64_t begin, std::uint64_t end) { put(begin, end); });
    flush();
    ::close(pagemap_);
    return ::close(file_) != 0 ? errno : error_;
  }

 private:
  void look_up(std::uint64_t begin, std::uint64_t end) {
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

  void put(std::uint64_t first, std::uint64_t second) {
    pairs[used_++] = {first, second};
    if (used_ == std::size(pairs)) flush();
  }

  void flush() {
    if (const int error = write_all(file_, pairs, used_ * sizeof(Pair))) error_ = error;
    used_ = 0;
  }

  std::uint64_t every_ = 0;  // 0: no frames
  int file_ = -1;
  int pagemap_ = -1;
  int error_ = 0;
  std::size_t used_ = 0;
};

struct LoggedAddress {
  std::uint64_t address;
  std::uint64_t size : 40;  // requested; 0: the block at this address is freed
  std::uint64_t thread : 24;
};
static_assert(sizeof(LoggedAddress) == 16);

class AddressLog {
 public:
  // path: null for no log. most: the maximum number of entries. frames: how often to query which
  // pages are resident. Returns an error number.
  int open(const char* path, std::uint64_t maximum, std::uint64_t frames) {
    if (path == nullptr) return 0;
    file_ = ::open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file_ < 0) return errno;
    bytes_ = (maximum + 1) * sizeof(LoggedAddress);
    // Allocates disk space, so that a full disk is an error here, and not a signal later.
    if (const int error = posix_fallocate(file_, 0, static_cast<off_t>(bytes_))) return error;
    void* const mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (mapped == MAP_FAILED) return errno;
    entries_ = static_cast<LoggedAddress*>(mapped);
    return frames_.open(path, frames, maximum);
  }

  void add(const void* block, std::uint64_t size, std::uint32_t thread) {
    if (entries_ == nullptr || block == nullptr) return;
    // relaxed: each gets a place of its own, and they are read when all threads have ended
    const std::uint64_t place = count_.fetch_add(1, std::memory_order_relaxed);
    if (frames_.is_due(place)) frames_.take(place);
    entries_[place] = {reinterpret_cast<std::uintptr_t>(block), size & 0xff'ffff'ffff,
                       thread & 0xff'ffff};
  }

  // Truncates the file to its contents.
  int close() {
    if (entries_ == nullptr) return 0;
    const int error = frames_.close(count_.load(std::memory_order_relaxed));
    munmap(entries_, bytes_);
    entries_ = nullptr;
    const std::uint64_t used = count_.load(std::memory_order_relaxed) * sizeof(LoggedAddress);
    const bool is_cut = ftruncate(file_, static_cast<off_t>(used)) == 0;
    return ::close(file_) == 0 && is_cut ? error : errno;
  }

 private:
  LoggedAddress* entries_ = nullptr;
  std::uint64_t bytes_ = 0;
  int file_ = -1;
  Frames frames_;
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace ts::replay
