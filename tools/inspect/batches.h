// Remote frees that the threads of another process have not sent yet (core/remote_frees.h). Slabs
// count their blocks as used.
#pragma once

#include "inspect/engine_image.h"
#include "inspect/list.h"

namespace ts {

class Batches {
 public:
  // Notes those of a heap. Damaged memory may have any numbers.
  void add(const EngineImage& image, const engine::ThreadHeap& heap, bool is_ended);
  // To be called between the last add() and the first take().
  void sort();

  struct Blocks {
    std::size_t of_threads = 0;        // in batches of threads that go on
    std::size_t of_ended_threads = 0;  // and of those that ended
  };
  // How many of the slab that begins with that page. Pages are to be asked for in order.
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
