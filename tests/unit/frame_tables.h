// Hand-made unwind tables: a module whose bytes are .eh_frame_hdr and .eh_frame, with its code some
// way after them.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "unwind/frame_tables.h"

namespace ts::testing {

using Bytes = std::vector<std::uint8_t>;

// Operations of call frame programs (DW_CFA).
namespace cfa {
inline Bytes uleb(std::uint64_t value) {
  Bytes bytes;
  do {
    bytes.push_back(static_cast<std::uint8_t>((value & 0x7f) | (value > 0x7f ? 0x80 : 0)));
    value >>= 7;
  } while (value != 0);
  return bytes;
}
inline Bytes sleb(std::int64_t value) {
  for (Bytes bytes;; value >>= 7) {
    const bool is_last = value >= -64 && value < 64;
    bytes.push_back(static_cast<std::uint8_t>((value & 0x7f) | (is_last ? 0 : 0x80)));
    if (is_last) return bytes;
  }
}
inline Bytes join(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}
inline Bytes advance(std::uint8_t units) { return {static_cast<std::uint8_t>(0x40 | units)}; }
inline Bytes saved_at(unsigned number, std::uint64_t units) {
  return join({{static_cast<std::uint8_t>(0x80 | number)}, uleb(units)});
}
inline Bytes restore(unsigned number) { return {static_cast<std::uint8_t>(0xc0 | number)}; }
inline Bytes define(unsigned number, std::uint64_t offset) {
  return join({{0x0c}, uleb(number), uleb(offset)});
}
inline Bytes define_register(unsigned number) { return join({{0x0d}, uleb(number)}); }
inline Bytes define_offset(std::uint64_t offset) { return join({{0x0e}, uleb(offset)}); }
inline Bytes define_by(const Bytes& expression) {
  return join({{0x0f}, uleb(expression.size()), expression});
}
inline Bytes saved_by(unsigned number, const Bytes& expression) {
  return join({{0x10}, uleb(number), uleb(expression.size()), expression});
}
inline Bytes with_number(std::uint8_t operation, unsigned number) {
  return join({{operation}, uleb(number)});
}
// Of expressions (DW_OP).
inline Bytes sum(unsigned number, std::int64_t offset) {
  return join({{static_cast<std::uint8_t>(0x70 + number)}, sleb(offset)});
}
inline constexpr std::uint8_t dereference = 0x06;
}  // namespace cfa

class MadeTables {
 public:
  static constexpr std::uintptr_t code_distance = 1 << 20;

  MadeTables() { bytes_.reserve(4096); }  // addresses stay

  // Where code begins; add functions in address order.
  std::uintptr_t code() const {
    return reinterpret_cast<std::uintptr_t>(bytes_.data()) + code_distance;
  }

  // A common entry (CIE) and its place. The bytes all follow the identity.
  std::size_t add_raw_common(const Bytes& content) {
    return add_entry(cfa::join({{0, 0, 0, 0}, content}));
  }
  std::size_t add_common(const Bytes& program, const Bytes& letters = {'z', 'R', 0},
                         const Bytes& data = {0x00}, std::uint8_t version = 1) {
    return add_raw_common(cfa::join({{version},
                                     letters,
                                     cfa::uleb(code_unit),
                                     cfa::sleb(-8),
                                     cfa::uleb(os::saved_numbers[os::return_address]),
                                     cfa::uleb(data.size()),
                                     data,
                                     program}));
  }
  void add_function(std::size_t common, std::uintptr_t begin, std::uint64_t length,
                    const Bytes& program) {
    const std::size_t place = entries_.size() + 4;
    Bytes content(20);
    put(content, 0, static_cast<std::uint32_t>(place - common));
    put(content, 4, begin);
    put(content, 12, length);
    pairs_.push_back({begin, add_entry(cfa::join({content, {0}, program}))});
  }
  // The same with eight-byte relative pointers, as letters R of 0x1c say.
  void add_relative_function(std::size_t common, std::uintptr_t begin, std::uint64_t length,
                             const Bytes& program) {
    const std::size_t at = entries_.size() + 8;
    add_function(common, begin, length, program);
    relative_.push_back(at);
  }

  // The tables, with their header at the beginning. Add no function afterwards.
  os::FrameTables tables() {
    bytes_.assign(12 + 8 * pairs_.size(), 0);
    const Bytes start = {1, 0xff, 0x03, 0x3b};
    std::memcpy(bytes_.data(), start.data(), start.size());
    put(bytes_, 4, static_cast<std::uint32_t>(pairs_.size()));
    // After the pairs, entries start at a multiple of 4.
    bytes_.resize(8 + 8 * pairs_.size());
    const auto begin = reinterpret_cast<std::uintptr_t>(bytes_.data());
    const std::size_t entries_at = bytes_.size();
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      put(bytes_, 8 + 8 * i, static_cast<std::int32_t>(pairs_[i].begin - begin));
      put(bytes_, 12 + 8 * i, static_cast<std::int32_t>(entries_at + pairs_[i].entry));
    }
    bytes_.insert(bytes_.end(), entries_.begin(), entries_.end());
    for (const std::size_t at : relative_) {
      std::uintptr_t pointer = 0;
      std::memcpy(&pointer, bytes_.data() + entries_at + at, sizeof pointer);
      put(bytes_, entries_at + at, pointer - (begin + entries_at + at));
    }
    return {begin, begin + bytes_.size(), begin};
  }
  Bytes& bytes() { return bytes_; }

  static constexpr std::uint64_t code_unit = 4;

  template <class Integer>
  static void put(Bytes& bytes, std::size_t at, Integer value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
  }

 private:
  struct Pair {
    std::uintptr_t begin;
    std::size_t entry;
  };

  std::size_t add_entry(Bytes content) {
    while (content.size() % 4 != 0) content.push_back(0);
    const std::size_t place = entries_.size();
    Bytes length(4);
    put(length, 0, static_cast<std::uint32_t>(content.size()));
    entries_ = cfa::join({entries_, length, content});
    return place;
  }

  Bytes bytes_;
  Bytes entries_;
  std::vector<Pair> pairs_;
  std::vector<std::size_t> relative_;
};

}  // namespace ts::testing
