// Maps addresses to the objects that live there.
//
// Every event has an address, and a trace has objects. A table of the standard library would
// allocate for each of them, and the collector has to keep up with the programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ts::record {

// Open addressing, linear probing; keys are addresses, never 0.
class ObjectMap {
 public:
  // Both return the previous object.
  std::optional<std::uint64_t> put(std::uint64_t address, std::uint64_t object);
  std::optional<std::uint64_t> take(std::uint64_t address);

  std::size_t size() const { return size_; }

 private:
  struct Entry {
    std::uint64_t address;  // 0: empty
    std::uint64_t object;
  };

  std::size_t home(std::uint64_t address) const {
    constexpr std::uint64_t golden = 0x9e3779b97f4a7c15;
    return static_cast<std::size_t>(((address >> 3) * golden) >> shift_);
  }
  std::size_t mask() const { return entries_.size() - 1; }
  std::size_t locate(std::uint64_t address) const;  // or the empty slot where it would be
  void grow();

  std::vector<Entry> entries_;
  std::size_t size_ = 0;
  unsigned shift_ = 64;
};

}  // namespace ts::record
