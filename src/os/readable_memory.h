// Which memory can be read: pages that the system was asked about. Tables may be damaged, modules
// unloaded, frame pointers anything, so the unwinder asks before it reads the first byte of a page.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::os {

inline constexpr std::uintptr_t least_page_bytes = 4096;

class ReadableMemory {
 public:
  // Knows of no page; or of the one in which `known` lies.
  ReadableMemory() noexcept = default;
  explicit ReadableMemory(std::uintptr_t known) noexcept : begin_{known & ~mask}, bytes_{page} {}

  // At most a page.
  bool holds(std::uintptr_t at, std::size_t bytes) noexcept {
    const std::uintptr_t offset = at - begin_;
    if (offset < bytes_ && bytes <= bytes_ - offset) [[likely]]
      return true;
    return look(at, bytes);
  }

  // A word on the stack; false if it cannot be read. AddressSanitizer keeps parts of stacks from
  // others.
  [[gnu::no_sanitize_address]] bool load(std::uintptr_t at, std::uintptr_t& word) noexcept {
    if (at % sizeof word != 0 || !holds(at, sizeof word)) return false;
    word = *reinterpret_cast<const std::uintptr_t*>(at);
    return true;
  }
  // Eight bytes of code, at any address. What looks like code may be a sanitizer's own memory.
  [[gnu::no_sanitize_address]] bool load_code(std::uintptr_t at, std::uint64_t& code) noexcept {
    struct [[gnu::packed, gnu::may_alias]] Code {
      std::uint64_t bytes;
    };
    if (!holds(at, sizeof code)) return false;
    code = reinterpret_cast<const Code*>(at)->bytes;
    return true;
  }

 private:
  static constexpr std::uintptr_t page = least_page_bytes;
  static constexpr std::uintptr_t mask = page - 1;

  bool look(std::uintptr_t at, std::size_t bytes) noexcept;

  // Pages in a row that can be read.
  std::uintptr_t begin_ = 0;
  std::uintptr_t bytes_ = 0;
};

}  // namespace ts::os
