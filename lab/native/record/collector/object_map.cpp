#include "record/collector/object_map.h"

#include <utility>

namespace ts::record {

std::size_t AddressTable::locate(std::uint64_t address) const {
  if (entries_.empty()) return 0;
  for (std::size_t i = home(address);; i = (i + 1) & mask()) {
    if (entries_[i].address == address) return i;
    if (entries_[i].address == 0) return entries_.size();
  }
}

const std::uint64_t* AddressTable::find(std::uint64_t address) const {
  const std::size_t found = locate(address);
  return found < entries_.size() ? &entries_[found].value : nullptr;
}

std::optional<std::uint64_t> AddressTable::put(std::uint64_t address, std::uint64_t value) {
  if ((size_ + 1) * 3 > entries_.size() * 2) grow();
  std::size_t i = home(address);
  while (entries_[i].address != 0 && entries_[i].address != address) i = (i + 1) & mask();
  if (entries_[i].address == address) return std::exchange(entries_[i].value, value);
  entries_[i] = {address, value};
  ++size_;
  return std::nullopt;
}

// Entries behind the hole move up, so that no search ends there too early.
std::optional<std::uint64_t> AddressTable::take(std::uint64_t address) {
  std::size_t hole = locate(address);
  if (hole == entries_.size()) return std::nullopt;
  const std::uint64_t value = entries_[hole].value;
  for (std::size_t i = (hole + 1) & mask(); entries_[i].address != 0; i = (i + 1) & mask()) {
    const std::size_t from_home = (i - home(entries_[i].address)) & mask();
    const std::size_t from_hole = (i - hole) & mask();
    if (from_home < from_hole) continue;
    entries_[hole] = entries_[i];
    hole = i;
  }
  entries_[hole] = {0, 0};
  --size_;
  return value;
}

void AddressTable::grow() {
  constexpr unsigned first_bits = 8;
  std::vector<Entry> old = std::move(entries_);
  shift_ = old.empty() ? 64 - first_bits : shift_ - 1;
  entries_.assign(std::size_t{1} << (64 - shift_), Entry{0, 0});
  size_ = 0;
  for (const Entry& entry : old) {
    if (entry.address != 0) put(entry.address, entry.value);
  }
}

const std::uint64_t* ObjectMap::find_below(std::uint64_t address) const {
  for (const Layer* layer = below_.get(); layer != nullptr; layer = layer->below.get()) {
    const std::uint64_t* const found = layer->table.find(address);
    if (found != nullptr) return *found != gone ? found : nullptr;
  }
  return nullptr;
}

std::optional<std::uint64_t> ObjectMap::put(std::uint64_t address, std::uint64_t object) {
  const std::optional<std::uint64_t> here = top_.put(address, object);
  if (here == gone) return std::nullopt;
  if (here.has_value() || below_ == nullptr) return here;
  const std::uint64_t* const there = find_below(address);
  return there != nullptr ? std::optional{*there} : std::nullopt;
}

std::optional<std::uint64_t> ObjectMap::take(std::uint64_t address) {
  if (below_ == nullptr) return top_.take(address);
  const std::uint64_t* const there = find_below(address);
  const std::optional<std::uint64_t> here =
      there != nullptr ? top_.put(address, gone) : top_.take(address);
  if (here == gone) return std::nullopt;
  if (here.has_value()) return here;
  return there != nullptr ? std::optional{*there} : std::nullopt;
}

ObjectMap ObjectMap::fork() {
  settle();
  if (layers() >= most_layers) flatten();
  if (top_.size() > 0) {
    below_ = std::make_shared<Layer>(Layer{std::move(top_), std::move(below_)});
    top_ = AddressTable{};
  }
  ObjectMap child;
  child.below_ = below_;
  return child;
}

// The larger table takes the smaller one's entries: below is what once lived, above what changed
// since.
void ObjectMap::settle() {
  while (below_ != nullptr && below_.use_count() == 1) {
    AddressTable changes = std::move(top_);
    const std::shared_ptr<Layer> layer = std::move(below_);
    top_ = std::move(layer->table);
    below_ = std::move(layer->below);
    changes.for_each([this](std::uint64_t address, std::uint64_t object) {
      object != gone ? top_.put(address, object) : take(address);
    });
  }
}

void ObjectMap::flatten() {
  std::vector<const AddressTable*> tables{&top_};
  for (const Layer* layer = below_.get(); layer != nullptr; layer = layer->below.get()) {
    tables.push_back(&layer->table);
  }
  AddressTable all;
  for (auto table = tables.rbegin(); table != tables.rend(); ++table) {  // the oldest first
    (*table)->for_each([&all](std::uint64_t address, std::uint64_t object) {
      object != gone ? all.put(address, object) : all.take(address);
    });
  }
  top_ = std::move(all);
  below_ = nullptr;
}

std::size_t ObjectMap::layers() const {
  std::size_t count = 0;
  for (const Layer* layer = below_.get(); layer != nullptr; layer = layer->below.get()) ++count;
  return count;
}

}  // namespace ts::record
