#include "engine/deferred_work.h"

#include <utility>

#include "engine/current_heap.h"
#include "engine/tending.h"

namespace ts::engine {

void do_deferred_work() noexcept {
  const OutOfScope out_of_scope;
  ThreadHeap& heap = own_heap();
  const DeferredCall call{&heap};
  if (!call.may_go_on()) return;
  if (std::exchange(heap.is_to_tend, false)) tend(heap);
  page_heap.send_purges();
}

}  // namespace ts::engine
