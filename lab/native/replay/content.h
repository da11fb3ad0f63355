// What replay writes into blocks, and whether it is still there.
//
// Untouched memory is not resident, so a replay that only called malloc would measure a heap that
// no program has; and an allocator that returns a block twice, or loses content in realloc, looks
// fast. The pattern follows from the slot, so it can be recomputed; different slots have different
// patterns.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::replay {

enum class Touch : std::uint8_t { none, first, page, all };

inline constexpr std::uint64_t intact = UINT64_MAX;

class Content {
 public:
  Content(Touch touch, bool is_verified) : touch_{touch}, is_verified_{is_verified} {}

  // A new block, or one that has grown from `kept` bytes: touches what is new, and marks the block.
  void write(void* block, std::uint64_t kept, std::uint64_t size, std::uint32_t slot) const;

  // The offset of the first byte that differs from what was written into a block of `written`
  // bytes, `kept` of which remain; or intact. Checks only what write() marks: both ends, or all of
  // it.
  std::uint64_t check(const void* block, std::uint64_t written, std::uint64_t kept,
                      std::uint32_t slot) const;

  // The same for a block that must be zero.
  static std::uint64_t check_zero(const void* block, std::uint64_t size);

  bool is_verified() const { return is_verified_; }

 private:
  Touch touch_;
  bool is_verified_;
};

}  // namespace ts::replay
