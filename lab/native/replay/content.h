// What replay writes into blocks, and whether it is still there.
//
// Untouched memory is not resident, so a replay that only called malloc would measure a heap that
// no program has; and an allocator that returns a block twice, or loses content in realloc, looks
// fast. The pattern follows from the slot, so it can be recomputed; different slots have different
// patterns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ts::replay {

enum class Touch : std::uint8_t { none, first, page, all };

inline constexpr std::uint64_t intact = UINT64_MAX;

inline constexpr std::uint64_t end_bytes = 16;  // marked at each end
inline constexpr std::uint64_t word_bytes = 8;
inline constexpr std::uintptr_t touched_page_bytes = 4096;  // of the smallest page size

inline std::uint64_t word(std::uint32_t slot, std::uint64_t number) {
  return ((std::uint64_t{slot} << 32) + number + 1) * 0x9e37'79b9'7f4a'7c15;
}

inline unsigned char byte_of(std::uint64_t value, std::uint64_t offset) {
  return static_cast<unsigned char>(value >> (offset % word_bytes * 8));
}

inline unsigned char byte(std::uint32_t slot, std::uint64_t offset) {
  return byte_of(word(slot, offset / word_bytes), offset);
}

inline void write_range(unsigned char* block, std::uint64_t begin, std::uint64_t end,
                        std::uint32_t slot) {
  std::uint64_t i = begin;
  for (; i < end && i % word_bytes != 0; ++i) block[i] = byte(slot, i);
  for (; i + word_bytes <= end; i += word_bytes) {
    const std::uint64_t value = word(slot, i / word_bytes);
    std::memcpy(block + i, &value, sizeof value);
  }
  for (; i < end; ++i) block[i] = byte(slot, i);
}

// The first byte in the range that differs from word(number); or intact.
template <class Word>
inline std::uint64_t check_range(const unsigned char* block, std::uint64_t begin, std::uint64_t end,
                                 Word&& word_of) {
  std::uint64_t i = begin;
  while (i < end) {
    const std::uint64_t expected = word_of(i / word_bytes);
    std::uint64_t value = 0;
    const bool is_whole = i % word_bytes == 0 && i + word_bytes <= end;
    if (is_whole) std::memcpy(&value, block + i, sizeof value);
    if (is_whole && value == expected) {
      i += word_bytes;
    } else if (block[i] == byte_of(expected, i)) {
      ++i;
    } else {
      return i;
    }
  }
  return intact;
}

class Content {
 public:
  Content(Touch touch, bool is_verified) : touch_{touch}, is_verified_{is_verified} {}

  // A new block, or one that has grown from `kept` bytes: touches what is new, and marks the block.
  void write(void* block, std::uint64_t kept, std::uint64_t size, std::uint32_t slot) const {
    auto* const bytes = static_cast<unsigned char*>(block);
    if (touch_ == Touch::all) {
      if (kept < size) write_range(bytes, kept, size, slot);
      return;
    }
    if (kept == 0 && size > 0 && touch_ != Touch::none) bytes[0] = byte(slot, 0);
    if (touch_ == Touch::page) {
      const auto address = reinterpret_cast<std::uintptr_t>(block);
      const std::uintptr_t next = (address + kept) / touched_page_bytes * touched_page_bytes;
      for (std::uintptr_t page = next; page < address + size; page += touched_page_bytes) {
        if (page > address && page >= address + kept) bytes[page - address] = byte(slot, 0);
      }
    }
    if (!is_verified_) return;
    const std::uint64_t front = std::min(size, end_bytes);
    write_range(bytes, 0, front, slot);
    write_range(bytes, std::max(front, size - front), size, slot);
  }

  // The offset of the first byte that differs from what was written into a block of `written`
  // bytes, `kept` of which remain; or intact. Checks only what write() marks: both ends, or all of
  // it.
  std::uint64_t check(const void* block, std::uint64_t written, std::uint64_t kept,
                      std::uint32_t slot) const {
    const auto* const bytes = static_cast<const unsigned char*>(block);
    const auto of_slot = [slot](std::uint64_t number) { return word(slot, number); };
    if (touch_ == Touch::all) return check_range(bytes, 0, std::min(written, kept), of_slot);
    const std::uint64_t front = std::min(written, end_bytes);
    const std::uint64_t wrong = check_range(bytes, 0, std::min(front, kept), of_slot);
    if (wrong != intact) return wrong;
    return check_range(bytes, std::max(front, written - front), std::min(written, kept), of_slot);
  }

  // The same for a block that must be zero.
  static std::uint64_t check_zero(const void* block, std::uint64_t size) {
    return check_range(static_cast<const unsigned char*>(block), 0, size,
                       [](std::uint64_t /*number*/) { return std::uint64_t{0}; });
  }

  bool is_verified() const { return is_verified_; }

 private:
  Touch touch_;
  bool is_verified_;
};

}  // namespace ts::replay
