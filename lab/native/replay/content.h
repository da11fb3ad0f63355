// What replay writes into blocks, and whether it is still there.
//
// Memory that is not touched is not resident, so a replay that only calls malloc would measure a
// heap that no program has; and an allocator that hands out a block twice, or loses content in
// realloc, looks fast. The pattern follows from the slot, so whatever was written can be told
// again; different slots have different patterns.
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

  // The offset of the first byte that is not what was written into a block of `written` bytes, of
  // which `kept` are left; or intact. Only what write() marks is looked at: both ends, or all of
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
