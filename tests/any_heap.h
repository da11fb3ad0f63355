// Any of the 18 heaps behind one set of virtual functions, the members of HeapLike. A test is
// written and compiled once, and exercises the heap template itself.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "classic/config.h"

namespace ts::testing {

class AnyHeap {
 public:
  virtual ~AnyHeap() = default;  // destroys the heap, and returns all its memory
  virtual void* allocate(std::size_t bytes, std::size_t alignment) = 0;
  virtual void release(void* payload) = 0;
  virtual bool resize(void* payload, std::size_t bytes) = 0;
  virtual std::size_t usable_size(const void* payload) const = 0;
  virtual std::size_t good_size(std::size_t bytes) const = 0;
  virtual HeapMeasures measures() = 0;
  virtual bool walk(BlockVisitor visit, void* argument) = 0;
  virtual bool trim(std::size_t keep_bytes) = 0;
  virtual bool is_valid() = 0;
  // Bytes of a contiguous piece of the segment outside all blocks.
  virtual std::size_t chunk_overhead_bytes() const = 0;
};

// A heap of the matrix by its names, the same as the libraries'.
struct Cell {
  std::string_view strategy;
  std::string_view fit;
  std::unique_ptr<AnyHeap> (*make)(const classic::HeapConfig& config);

  std::string name(char between) const {
    return std::string{strategy} + between + std::string{fit};
  }
};

extern const std::array<Cell, 18> cells;

}  // namespace ts::testing
