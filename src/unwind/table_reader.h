// A cursor over bytes of .eh_frame and .eh_frame_hdr, which may be damaged: it reads nothing
// outside of its bounds or in unreadable pages. After a failed read, all further ones fail and
// return 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "os/readable_memory.h"

namespace ts::os {

// Pointer encodings (DW_EH_PE): a format in the low four bits, and the base that it is relative to.
namespace pointer_encoding {
inline constexpr std::uint8_t absolute = 0x00;
inline constexpr std::uint8_t pc_relative = 0x10;
inline constexpr std::uint8_t data_relative = 0x30;
inline constexpr std::uint8_t relation_mask = 0x70;
inline constexpr std::uint8_t indirect = 0x80;
inline constexpr std::uint8_t format_mask = 0x0f;
inline constexpr std::uint8_t signed_4 = 0x0b;
inline constexpr std::uint8_t omitted = 0xff;
}  // namespace pointer_encoding

class TableReader {
 public:
  TableReader(ReadableMemory& memory, std::uintptr_t begin, std::uintptr_t end) noexcept
      : memory_{memory}, at_{begin}, end_{end > begin ? end : begin} {}

  std::uintptr_t at() const noexcept { return at_; }
  std::uintptr_t end() const noexcept { return end_; }
  bool is_at_end() const noexcept { return at_ >= end_; }
  bool failed() const noexcept { return failed_; }
  void fail() noexcept {
    failed_ = true;
    at_ = end_;
  }

  // Moves only towards the end, and not beyond it.
  void skip(std::uint64_t bytes) noexcept {
    if (bytes > end_ - at_) return fail();
    at_ += bytes;
  }
  // Shortens the rest.
  void limit(std::uint64_t bytes) noexcept {
    if (bytes > end_ - at_) return fail();
    end_ = at_ + bytes;
  }

  template <class Value>
  Value read() noexcept {
    Value value{};
    read_to(&value, sizeof value);
    return value;
  }
  std::uint8_t byte() noexcept;

  // LEB128.
  std::uint64_t unsigned_number() noexcept;
  std::int64_t signed_number() noexcept;
  // A number in the format of an encoding, as stored; and the pointer that it stands for.
  std::uint64_t formatted(std::uint8_t encoding) noexcept;
  std::uintptr_t pointer(std::uint8_t encoding, std::uintptr_t data_base) noexcept;

  ReadableMemory& memory() noexcept { return memory_; }

 private:
  void read_to(void* value, std::size_t bytes) noexcept;
  std::uint64_t number(bool is_signed) noexcept;

  ReadableMemory& memory_;
  std::uintptr_t at_;
  std::uintptr_t end_;
  bool failed_ = false;
};

}  // namespace ts::os
