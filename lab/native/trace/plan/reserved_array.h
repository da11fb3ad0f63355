// A large array of which only the part that is used takes memory.
//
// Why it exists: an image of 10^8 objects needs a table of them, and its size is known before; a
// vector that grows would hold it twice. What it refuses to do: construct anything. Items begin as
// zero bytes.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "trace/format/error.h"

namespace ts::trace {

template <class T>
class ReservedArray {
 public:
  explicit ReservedArray(std::size_t count) : count_{count} {
    static_assert(std::is_trivially_copyable_v<T>);
    constexpr std::size_t most = (std::size_t{1} << 46) / sizeof(T);
    if (count < most) {
      void* const mapped = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mapped != MAP_FAILED) items_ = static_cast<T*>(mapped);
    }
    if (items_ == nullptr) {
      throw Error{"not enough address space for the trace's objects; raise `ulimit -v`."};
    }
  }
  ~ReservedArray() {
    if (items_ != nullptr) munmap(items_, bytes());
  }
  ReservedArray(ReservedArray&& other) noexcept
      : items_{std::exchange(other.items_, nullptr)}, count_{other.count_} {}
  ReservedArray& operator=(ReservedArray&& other) noexcept {
    std::swap(items_, other.items_);
    std::swap(count_, other.count_);
    return *this;
  }

  T& operator[](std::size_t index) { return items_[index]; }
  const T& operator[](std::size_t index) const { return items_[index]; }
  std::size_t size() const { return count_; }

  void copy_from(const ReservedArray& other, std::size_t count) {
    std::memcpy(items_, other.items_, count * sizeof(T));
  }

 private:
  std::size_t bytes() const { return (count_ + 1) * sizeof(T); }

  T* items_ = nullptr;
  std::size_t count_;
};

}  // namespace ts::trace
