// A large array of which only the part that is used takes memory.
//
// Why it exists: an image of 10^8 objects needs a table of them, and its size is known before; a
// vector that grows would hold it twice. What it refuses to do: construct anything. Items begin as
// zero bytes.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>

#include "trace/format/error.h"

namespace ts::trace {

template <class T>
class ReservedArray {
 public:
  explicit ReservedArray(std::size_t count) : count_{count} {
    static_assert(std::is_trivially_copyable_v<T>);
    constexpr std::size_t most = (std::size_t{1} << 46) / sizeof(T);
    const std::size_t bytes = (count + 1) * sizeof(T);
    void* const mapped = count < most ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                                      : MAP_FAILED;
    if (mapped == MAP_FAILED) {
      throw Error{"not enough address space for the trace's objects; raise `ulimit -v`."};
    }
    items_ = std::unique_ptr<T[], Unmap>{static_cast<T*>(mapped), Unmap{bytes}};
  }

  T& operator[](std::size_t index) { return items_[index]; }
  const T& operator[](std::size_t index) const { return items_[index]; }
  std::size_t size() const { return count_; }

  void copy_from(const ReservedArray& other, std::size_t count) {
    std::memcpy(items_.get(), other.items_.get(), count * sizeof(T));
  }

 private:
  struct Unmap {
    std::size_t bytes = 0;
    void operator()(T* items) const { munmap(items, bytes); }
  };

  std::unique_ptr<T[], Unmap> items_;
  std::size_t count_;
};

}  // namespace ts::trace
