// What a program knows about its blocks: their addresses, lengths and contents. A heap that
// disagrees ends the process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "base/bits.h"

namespace ts::fuzz {

inline void require(bool holds, const char* what, const void* where = nullptr) {
  if (holds) [[likely]]
    return;
  std::fprintf(stderr, "FAILED: %s (%p)\n", what, where);
  std::abort();
}

// The contents of a block, by offset: all of a short one; for a long one both ends and places
// between them, so that its pages need not all be resident.
class Content {
 public:
  explicit Content(std::uint64_t seed) : seed_{seed} {}

  void write(std::byte* block, std::size_t bytes) const {
    for_each_place(bytes, [&](std::size_t begin, std::size_t end) {
      for_each_word(begin, end, [&](std::size_t at, std::uint64_t word, std::size_t length) {
        copy_word(block + at, &word, length);
      });
    });
  }

  // Whether the first `kept` of the `bytes` that were written are unchanged.
  void require_intact(const std::byte* block, std::size_t bytes, std::size_t kept) const {
    for_each_place(bytes, [&](std::size_t begin, std::size_t end) {
      end = std::min(end, kept);
      for_each_word(begin, end, [&](std::size_t at, std::uint64_t word, std::size_t length) {
        std::uint64_t found = word;
        copy_word(&found, block + at, length);
        require(found == word, "the contents of a block changed", block + at);
      });
    });
  }

  // Whether an unwritten block is zero: all of it, or both ends of a very long one.
  static void require_zero(const std::byte* block, std::size_t bytes) {
    const std::size_t end = std::min(bytes, most_zeroes_looked_at / 2);
    require_zero(block, 0, end);
    require_zero(block, std::max(end, bytes - end), bytes);
  }

  // In pages of 4 KiB, the cost of a block.
  static std::size_t touched_bytes(std::size_t bytes) {
    return std::min(bytes, (places_between + 2) * 4096);
  }

 private:
  static constexpr std::size_t most_whole_bytes = 4096;
  static constexpr std::size_t end_bytes = 512;
  static constexpr std::size_t places_between = 6;
  static constexpr std::size_t most_zeroes_looked_at = std::size_t{8} << 20;

  static void require_zero(const std::byte* block, std::size_t begin, std::size_t end) {
    static constexpr std::byte zeroes[most_whole_bytes] = {};
    for (std::size_t at = begin; at < end; at += most_whole_bytes)
      require(std::memcmp(block + at, zeroes, std::min(most_whole_bytes, end - at)) == 0,
              "a block of calloc is not zero", block + at);
  }

  template <class Visit>
  static void for_each_place(std::size_t bytes, const Visit& visit) {
    if (bytes <= most_whole_bytes) return visit(0, bytes);
    visit(0, end_bytes);
    const std::size_t step = align_down(bytes / places_between, 64);
    for (std::size_t at = end_bytes + step; at < bytes - end_bytes - 64; at += step)
      visit(at, at + 64);
    visit(bytes - end_bytes, bytes);
  }

  // The last word may be shorter.
  template <class Visit>
  void for_each_word(std::size_t begin, std::size_t end, const Visit& visit) const {
    std::size_t at = begin;
    for (; at + sizeof(std::uint64_t) <= end; at += sizeof(std::uint64_t))
      visit(at, mix(seed_ + at), sizeof(std::uint64_t));
    if (at < end) visit(at, mix(seed_ + at), end - at);
  }
  // Most words are whole, and take one instruction.
  static void copy_word(void* to, const void* from, std::size_t length) {
    if (length == sizeof(std::uint64_t)) {
      std::memcpy(to, from, sizeof(std::uint64_t));
    } else {
      std::memcpy(to, from, length);
    }
  }

  std::uint64_t seed_;
};

struct Held {
  std::byte* address = nullptr;
  std::size_t bytes = 0;   // requested
  std::size_t usable = 0;  // usable, as the heap reports
  std::size_t alignment = 0;
  std::size_t filled = 0;  // written, as Content{seed} has them,
  std::size_t kept = 0;    // and how many of these remain
  std::uint64_t seed = 0;
  unsigned seat = 0;  // whose thread allocated it

  void fill(std::uint64_t new_seed, bool with_surplus) {
    seed = new_seed;
    filled = kept = with_surplus ? usable : bytes;
    Content{seed}.write(address, filled);
  }
  void require_intact() const { Content{seed}.require_intact(address, filled, kept); }
  // It may have become shorter.
  void keep(std::size_t at_most) { kept = std::min(kept, at_most); }
};

// All blocks that the program holds.
class Shadow {
 public:
  // The most at a time; a program that wants more must do something else first.
  static constexpr std::size_t most_blocks = 4000;
  static constexpr std::size_t most_touched_bytes = std::size_t{8} << 20;
  static constexpr std::size_t most_bytes = std::size_t{1} << 28;

  bool is_full() const {
    return blocks_.size() >= most_blocks || touched_ > most_touched_bytes || bytes_ > most_bytes;
  }
  // How many blocks of this size there is room for, at most this many.
  std::size_t room_for(std::size_t count, std::size_t bytes) const {
    if (is_full()) return 0;
    const std::size_t touched = Content::touched_bytes(bytes) + 1;
    return std::min({count, most_blocks - blocks_.size(),
                     (most_touched_bytes - touched_) / touched + 1,
                     (most_bytes - bytes_) / (bytes + 1) + 1});
  }
  bool is_empty() const { return blocks_.empty(); }
  std::size_t size() const { return blocks_.size(); }
  const std::vector<Held>& blocks() const { return blocks_; }
  const Held& at(std::size_t number) const { return blocks_[number]; }

  void add(const Held& held) {
    // No byte of it is another block's.
    const std::uintptr_t begin = address_of(held.address);
    const auto next = ends_.lower_bound(begin);
    require(next == ends_.end() || next->first >= begin + std::max<std::size_t>(held.usable, 1),
            "a block overlaps the one behind it", held.address);
    require(next == ends_.begin() || std::prev(next)->second <= begin,
            "a block overlaps the one before it", held.address);
    ends_.emplace_hint(next, begin, begin + held.usable);
    touched_ += Content::touched_bytes(held.usable);
    bytes_ += held.usable;
    blocks_.push_back(held);
  }

  Held remove(std::size_t number) {
    const Held held = blocks_[number];
    blocks_[number] = blocks_.back();
    blocks_.pop_back();
    ends_.erase(address_of(held.address));
    touched_ -= Content::touched_bytes(held.usable);
    bytes_ -= held.usable;
    return held;
  }

  // Whether a block held by the program begins there, with room for `bytes`.
  bool holds(const void* address, std::size_t bytes) const {
    const auto found = ends_.find(address_of(address));
    return found != ends_.end() && found->second - found->first <= bytes;
  }

 private:
  std::vector<Held> blocks_;
  std::map<std::uintptr_t, std::uintptr_t> ends_;  // by address
  std::size_t touched_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace ts::fuzz
