// Maps addresses to the objects that live there.
//
// Every event has an address, and a trace has objects. A table of the standard library would
// allocate for each of them, and the collector has to keep up with the programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace ts::record {

// Open addressing, linear probing; keys are addresses, never 0.
class ObjectMap {
 public:
  // Both return the previous object.
  std::optional<std::uint64_t> put(std::uint64_t address, std::uint64_t object) {
    if ((size_ + 1) * 3 > entries_.size() * 2) grow();
    Entry& entry = entries_[locate(address)];
    if (entry.address == address) return std::exchange(entry.object, object);
    entry = {address, object};
    ++size_;
    return std::nullopt;
  }

  // Entries after the hole move up, so that no search ends there too early.
  std::optional<std::uint64_t> take(std::uint64_t address) {
    if (entries_.empty()) return std::nullopt;
    std::size_t hole = locate(address);
    if (entries_[hole].address == 0) return std::nullopt;
    const std::uint64_t object = entries_[hole].object;
    for (std::size_t i = (hole + 1) & mask(); entries_[i].address != 0; i = (i + 1) & mask()) {
      const std::size_t from_home = (i - home(entries_[i].address)) & mask();
      const std::size_t from_hole = (i - hole) & mask();
      if (from_home < from_hole) continue;
      entries_[hole] = entries_[i];
      hole = i;
    }
    entries_[hole] = {0, 0};
    --size_;
    return object;
  }

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

  // Or the empty slot where it would be.
  std::size_t locate(std::uint64_t address) const {
    std::size_t i = home(address);
    while (entries_[i].address != 0 && entries_[i].address != address) i = (i + 1) & mask();
    return i;
  }

  void grow() {
    constexpr unsigned first_bits = 8;
    std::vector<Entry> old = std::move(entries_);
    shift_ = old.empty() ? 64 - first_bits : shift_ - 1;
    entries_.assign(std::size_t{1} << (64 - shift_), Entry{0, 0});
    size_ = 0;
    for (const Entry& entry : old) {
      if (entry.address != 0) put(entry.address, entry.object);
    }
  }

  std::vector<Entry> entries_;
  std::size_t size_ = 0;
  unsigned shift_ = 64;
};

}  // namespace ts::record
