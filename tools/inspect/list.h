// A growing list, in place of the C++ library, which the tools do without.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <type_traits>

#include "common/system.h"

namespace ts {

template <class T>
class List {
 public:
  static_assert(std::is_trivially_copyable_v<T>);

  List() = default;
  ~List() { std::free(items_); }
  List(const List&) = delete;
  List& operator=(const List&) = delete;

  T& add(const T& item) {
    if (count_ == capacity_) {
      constexpr std::size_t minimum = 256;
      capacity_ = capacity_ == 0 ? minimum : 2 * capacity_;
      auto* const grown = static_cast<T*>(std::realloc(items_, capacity_ * sizeof(T)));
      if (grown == nullptr) fail_internal("a list of what the process has", ENOMEM);
      items_ = grown;
    }
    return items_[count_++] = item;
  }
  // Replaces the contents by this many zeroed items.
  void fill(std::size_t count) {
    std::free(items_);
    items_ = static_cast<T*>(std::calloc(count + 1, sizeof(T)));
    if (items_ == nullptr) fail_internal("a list of what the process has", ENOMEM);
    count_ = count;
    capacity_ = count + 1;
  }
  void clear() { count_ = 0; }
  void shorten_to(const T* end) { count_ = static_cast<std::size_t>(end - items_); }
  // Removes the item, by moving the last one into its place.
  void remove(const T& item) {
    T* const place = items_ + (&item - items_);
    *place = items_[--count_];
  }

  bool is_empty() const { return count_ == 0; }
  std::size_t count() const { return count_; }
  T* begin() { return items_; }
  T* end() { return items_ + count_; }
  const T* begin() const { return items_; }
  const T* end() const { return items_ + count_; }
  T& operator[](std::size_t i) { return items_[i]; }
  const T& operator[](std::size_t i) const { return items_[i]; }
  T& last() { return items_[count_ - 1]; }

 private:
  T* items_ = nullptr;
  std::size_t count_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace ts
