// What a test writes into every byte of a block: a pattern that depends on the block's place,
// length and thread. A block that was allocated twice, moved, cut short or overwritten by the
// heap's own links looks wrong to its holder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "programs/support/random.h"

namespace ts::test {

inline constexpr std::size_t intact = SIZE_MAX;

class Content {
 public:
  // `key`: the holder of the block. A block that moves with its contents (realloc) keeps the `home`
  // where it was filled.
  Content(const void* home, std::size_t bytes, std::uint64_t key)
      : first_{Random{reinterpret_cast<std::uintptr_t>(home) * 31 + bytes + (key << 48)}.next()} {}

  void write(void* block, std::size_t bytes) const {
    auto* to = static_cast<std::byte*>(block);
    for (std::size_t at = 0; at < bytes; at += word_bytes) {
      const std::uint64_t word = word_at(at);
      std::memcpy(to + at, &word, at + word_bytes <= bytes ? word_bytes : bytes - at);
    }
  }

  // Offset of the first word that write() did not write, or `intact`.
  std::size_t first_damage(const void* block, std::size_t bytes) const {
    const auto* from = static_cast<const std::byte*>(block);
    for (std::size_t at = 0; at < bytes; at += word_bytes) {
      const std::uint64_t word = word_at(at);
      if (std::memcmp(from + at, &word, at + word_bytes <= bytes ? word_bytes : bytes - at) != 0)
        return at;
    }
    return intact;
  }

 private:
  static constexpr std::size_t word_bytes = sizeof(std::uint64_t);

  std::uint64_t word_at(std::size_t at) const { return first_ + at * 0x9e3779b97f4a7c15ULL; }

  std::uint64_t first_;
};

}  // namespace ts::test
