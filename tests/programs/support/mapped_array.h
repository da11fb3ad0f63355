// A zero-initialised array of fixed size in memory of its own (mmap), so that a test's records
// neither change the heap under test nor move the break.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

namespace ts::test {

template <class T>
class MappedArray {
  static_assert(std::is_trivially_destructible_v<T>, "elements are dropped, never destroyed");

 public:
  explicit MappedArray(std::size_t size) : size_{size} {
    void* memory = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
      std::perror("no memory for the bookkeeping of the test");
      std::exit(2);
    }
    elements_ = static_cast<T*>(memory);
  }
  ~MappedArray() { ::munmap(elements_, bytes()); }
  MappedArray(const MappedArray&) = delete;
  MappedArray& operator=(const MappedArray&) = delete;

  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return elements_[i]; }
  const T& operator[](std::size_t i) const { return elements_[i]; }
  T* begin() { return elements_; }
  T* end() { return elements_ + size_; }
  const T* begin() const { return elements_; }
  const T* end() const { return elements_ + size_; }

 private:
  std::size_t bytes() const { return size_ * sizeof(T) + 1; }  // mmap refuses 0

  std::size_t size_;
  T* elements_;
};

}  // namespace ts::test
