// Objects and their bytes, by a quantity that spans many orders of magnitude.
//
// Why it exists: 10^8 lifetimes cannot be kept to be sorted. 32 buckets for each octave tell any
// quantile to 3.2 %. What it refuses to do: average.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "trace/analyze/buckets.h"

namespace ts::trace {

struct Amount {
  std::uint64_t objects = 0;
  std::uint64_t bytes = 0;

  void add(std::uint64_t size) {
    ++objects;
    bytes += size;
  }
  void remove(std::uint64_t size) {
    --objects;
    bytes -= size;
  }
  friend bool operator==(const Amount&, const Amount&) = default;
};

class Histogram {
 public:
  using Fine = Buckets<5>;

  void add(std::uint64_t value, std::uint64_t size) {
    amounts_[Fine::index(value)].add(size);
    ++objects_;
    highest_ = std::max(highest_, value);
  }

  std::uint64_t objects() const { return objects_; }
  std::uint64_t highest() const { return highest_; }

  // The least bound of a bucket that at least `share` of the objects do not exceed; 0 without
  // objects. Never above the highest value.
  std::uint64_t quantile(double share) const {
    const double wanted = share * static_cast<double>(objects_);
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < Fine::count; ++i) {
      seen += amounts_[i].objects;
      if (seen > 0 && static_cast<double>(seen) >= wanted) {
        return std::min(Fine::upper(i), highest_);
      }
    }
    return highest_;
  }

  // visit(upper, amount) for each octave that holds anything, in order.
  template <typename Visit>
  void each_octave(Visit visit) const {
    std::array<Amount, Octaves::count> octaves{};
    for (std::size_t i = 0; i < Fine::count; ++i) {
      Amount& octave = octaves[Octaves::index(Fine::upper(i))];
      octave.objects += amounts_[i].objects;
      octave.bytes += amounts_[i].bytes;
    }
    for (std::size_t i = 0; i < octaves.size(); ++i) {
      if (octaves[i].objects > 0) visit(Octaves::upper(i), octaves[i]);
    }
  }

 private:
  std::array<Amount, Fine::count> amounts_{};
  std::uint64_t objects_ = 0;
  std::uint64_t highest_ = 0;
};

// The same by two quantities, an octave each: a heat map.
class HeatMap {
 public:
  void add(std::uint64_t size, std::uint64_t lifetime) {
    amounts_[Octaves::index(size)][Octaves::index(lifetime)].add(size);
  }

  // visit(size's upper, lifetime's upper, amount) for each cell that holds anything.
  template <typename Visit>
  void each(Visit visit) const {
    for (std::size_t row = 0; row < amounts_.size(); ++row) {
      for (std::size_t column = 0; column < amounts_[row].size(); ++column) {
        const Amount& amount = amounts_[row][column];
        if (amount.objects > 0) visit(Octaves::upper(row), Octaves::upper(column), amount);
      }
    }
  }

 private:
  std::array<std::array<Amount, Octaves::count>, Octaves::count> amounts_{};
};

}  // namespace ts::trace
