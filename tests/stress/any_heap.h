// Any heap of the matrix behind one set of virtual functions, so that a stress run is written and
// compiled once, and what it exercises is the heap template itself. Refuses to offer more than
// HeapLike does.
#pragma once

#include <array>
#include <memory>

#include "classic/variants.h"

namespace ts::stress {

class AnyHeap {
 public:
  virtual ~AnyHeap() = default;
  virtual void* allocate(std::size_t bytes, std::size_t alignment) = 0;
  virtual void release(void* payload) = 0;
  virtual bool resize(void* payload, std::size_t bytes) = 0;
  virtual std::size_t usable_size(const void* payload) = 0;
  virtual HeapMeasures measures() = 0;
  virtual bool walk(BlockVisitor visit, void* argument) = 0;
  virtual bool trim(std::size_t keep_bytes) = 0;
  virtual bool is_valid() = 0;
  // Bytes of a contiguous piece of the segment that are in no block.
  virtual std::size_t chunk_overhead_bytes() const = 0;
};

template <class Heap>
inline constexpr bool is_lock_free = false;
template <class Fit>
inline constexpr bool is_lock_free<classic::LockFree<Fit>> = true;

template <HeapLike Heap>
class HeapOf final : public AnyHeap {
 public:
  explicit HeapOf(const classic::HeapConfig& config) : heap_{config} {}
  ~HeapOf() override { heap_.destroy(); }
  HeapOf(const HeapOf&) = delete;
  HeapOf& operator=(const HeapOf&) = delete;

  void* allocate(std::size_t bytes, std::size_t alignment) override {
    return heap_.allocate(bytes, alignment);
  }
  void release(void* payload) override { heap_.release(payload); }
  bool resize(void* payload, std::size_t bytes) override { return heap_.resize(payload, bytes); }
  std::size_t usable_size(const void* payload) override { return Heap::usable_size(payload); }
  HeapMeasures measures() override { return heap_.measures(); }
  bool walk(BlockVisitor visit, void* argument) override { return heap_.walk(visit, argument); }
  bool trim(std::size_t keep_bytes) override { return heap_.trim(keep_bytes); }
  bool is_valid() override { return heap_.is_valid(); }
  std::size_t chunk_overhead_bytes() const override { return classic::Chunk::overhead_bytes; }

 private:
  Heap heap_;
};

// A cell of the matrix by its names.
struct Cell {
  const char* strategy;
  const char* fit;
  std::unique_ptr<AnyHeap> (*make)(const classic::HeapConfig& config);
};

template <HeapLike Heap>
std::unique_ptr<AnyHeap> make_heap(const classic::HeapConfig& config) {
  return std::make_unique<HeapOf<Heap>>(config);
}

template <template <class> class Strategy>
constexpr std::array<Cell, 3> cells_of(const char* strategy) {
  return {{{strategy, "first", make_heap<Strategy<classic::FirstFit>>},
           {strategy, "best", make_heap<Strategy<classic::BestFit>>},
           {strategy, "worst", make_heap<Strategy<classic::WorstFit>>}}};
}

inline constexpr std::array<std::array<Cell, 3>, 6> matrix{
    cells_of<classic::Lock>("lock"),        cells_of<classic::ReadWrite>("rwlock"),
    cells_of<classic::PerThread>("nolock"), cells_of<classic::Arenas>("arenas"),
    cells_of<classic::Cached>("cached"),    cells_of<classic::LockFree>("lockfree")};

}  // namespace ts::stress
