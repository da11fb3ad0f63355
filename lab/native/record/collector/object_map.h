// From addresses to the objects that live there; copied at a fork for next to nothing.
//
// Every event names an address, and a trace objects. A forked child inherits its parent's objects,
// and a server may have millions of them. So parent and child share what they had at the fork, and
// each keeps its own changes. They are merged when no process shares them any more, or when there
// are too many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace ts::record {

// Open addressing, linear probing; keys are addresses, never 0.
class AddressTable {
 public:
  const std::uint64_t* find(std::uint64_t address) const;  // null: none
  // Returns the value that was there.
  std::optional<std::uint64_t> put(std::uint64_t address, std::uint64_t value);
  std::optional<std::uint64_t> take(std::uint64_t address);
  std::size_t size() const { return size_; }

  template <class Visit>
  void for_each(Visit visit) const {
    for (const Entry& entry : entries_) {
      if (entry.address != 0) visit(entry.address, entry.value);
    }
  }

 private:
  struct Entry {
    std::uint64_t address;  // 0: empty
    std::uint64_t value;
  };

  std::size_t home(std::uint64_t address) const {
    constexpr std::uint64_t golden = 0x9e3779b97f4a7c15;
    return static_cast<std::size_t>(((address >> 3) * golden) >> shift_);
  }
  std::size_t mask() const { return entries_.size() - 1; }
  std::size_t locate(std::uint64_t address) const;  // entries_.size() where it is not
  void grow();

  std::vector<Entry> entries_;
  std::size_t size_ = 0;
  unsigned shift_ = 64;
};

class ObjectMap {
 public:
  // Both return the object that was there; nothing: none is known.
  std::optional<std::uint64_t> put(std::uint64_t address, std::uint64_t object);
  std::optional<std::uint64_t> take(std::uint64_t address);

  // For the child of a fork.
  ObjectMap fork();

  // Merges what no process shares any more; to be called when a child has ended.
  void settle();

  std::size_t layers() const;

 private:
  static constexpr std::uint64_t gone = UINT64_MAX;  // in a layer above the one that has the object
  static constexpr std::size_t most_layers = 8;

  struct Layer {
    AddressTable table;
    std::shared_ptr<Layer> below;  // never changed while it is shared
  };

  const std::uint64_t* find_below(std::uint64_t address) const;
  void flatten();

  AddressTable top_;
  std::shared_ptr<Layer> below_;
};

}  // namespace ts::record
