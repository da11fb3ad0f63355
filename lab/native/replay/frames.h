// Which pages are resident at some moments of a replay, which a picture of the heap over time needs
// besides addresses. docs/formats/trace.md describes the file.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::replay {

class Frames {
 public:
  // path: of the addresses; the frames go into PATH.frames. entries: the number of addresses to
  // come. Returns an error number.
  int open(const char* path, std::uint64_t count, std::uint64_t entries);

  bool is_due(std::uint64_t entry) const { return every_ != 0 && entry % every_ == 0; }

  // Call before writing the entry of this number, from the one running thread.
  void take(std::uint64_t entry);

  int close(std::uint64_t entries);  // with a last frame, and replay's own memory

 private:
  void look_up(std::uint64_t begin, std::uint64_t end);
  void put(std::uint64_t first, std::uint64_t second);
  void flush();

  std::uint64_t every_ = 0;  // 0: no frames
  int file_ = -1;
  int pagemap_ = -1;
  int error_ = 0;
  std::size_t used_ = 0;
};

}  // namespace ts::replay
