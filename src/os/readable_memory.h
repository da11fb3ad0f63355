// Which memory is readable, according to the kernel. Tables may be damaged, modules unloaded, and
// frame pointers arbitrary, so the unwinder asks before it reads the first byte of a page.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::os {

inline constexpr std::uintptr_t least_page_bytes = 4096;

class ReadableMemory {
 public:
  // Knows of no page, or of the one that contains `known`.
  ReadableMemory() noexcept = default;
  explicit ReadableMemory(std::uintptr_t known) noexcept : begin_{known & ~mask}, bytes_{page} {}

  // `bytes` is at most a page.
  bool holds(std::uintptr_t at, std::size_t bytes) noexcept {
    const std::uintptr_t offset = at - begin_;
    if (offset < bytes_ && bytes <= bytes_ - offset) [[likely]]
      return true;
    return look(at, bytes);
  }

  // Loads a word from the stack; false if it cannot be read. AddressSanitizer poisons parts of
  // stacks.
  [[gnu::no_sanitize_address]] bool load(std::uintptr_t at, std::uintptr_t& word) noexcept {
    if (at % sizeof word != 0 || !holds(at, sizeof word)) return false;
    word = *reinterpret_cast<const std::uintptr_t*>(at);
    return true;
  }
  // Loads eight bytes of code from any address. What looks like code may be a sanitizer's own
  // memory.
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

  // Consecutive readable pages.
  std::uintptr_t begin_ = 0;
  std::uintptr_t bytes_ = 0;
};

}  // namespace ts::os
