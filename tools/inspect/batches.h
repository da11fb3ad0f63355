// Remote frees that another process's threads have not sent yet (core/remote_frees.h). Slabs count
// these blocks as used.
#pragma once

#include "inspect/engine_image.h"
#include "inspect/list.h"

namespace ts {

class Batches {
 public:
  // Adds those of a heap. Damaged memory may contain any numbers.
  void add(const EngineImage& image, const engine::ThreadHeap& heap, bool is_ended);
  // Call between the last add() and the first take().
  void sort();

  struct Blocks {
    std::size_t of_threads = 0;        // in batches of live threads
    std::size_t of_ended_threads = 0;  // and of ended ones
  };
  // How many belong to the slab that begins with that page. Ask for pages in ascending order.
  Blocks take(std::size_t page);

 private:
  struct Batch {
    std::size_t page;
    std::uint32_t count;
    bool is_ended;
  };

  List<Batch> batches_;
  std::size_t next_ = 0;
};

}  // namespace ts
