#include "any_heap.h"

#include "classic/variants.h"

namespace ts::testing {
namespace {

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
  std::size_t usable_size(const void* payload) const override { return Heap::usable_size(payload); }
  std::size_t good_size(std::size_t bytes) const override { return Heap::good_size(bytes); }
  HeapMeasures measures() override { return heap_.measures(); }
  bool walk(BlockVisitor visit, void* argument) override { return heap_.walk(visit, argument); }
  bool trim(std::size_t keep_bytes) override { return heap_.trim(keep_bytes); }
  bool is_valid() override { return heap_.is_valid(); }
  std::size_t chunk_overhead_bytes() const override { return classic::Chunk::overhead_bytes; }

 private:
  Heap heap_;
};

template <HeapLike Heap>
std::unique_ptr<AnyHeap> make(const classic::HeapConfig& config) {
  return std::make_unique<HeapOf<Heap>>(config);
}

}  // namespace

using namespace ts::classic;

constinit const std::array<Cell, 18> cells{{
    {"lock", "first", make<Lock<FirstFit>>},
    {"lock", "best", make<Lock<BestFit>>},
    {"lock", "worst", make<Lock<WorstFit>>},
    {"rwlock", "first", make<ReadWrite<FirstFit>>},
    {"rwlock", "best", make<ReadWrite<BestFit>>},
    {"rwlock", "worst", make<ReadWrite<WorstFit>>},
    {"nolock", "first", make<PerThread<FirstFit>>},
    {"nolock", "best", make<PerThread<BestFit>>},
    {"nolock", "worst", make<PerThread<WorstFit>>},
    {"arenas", "first", make<Arenas<FirstFit>>},
    {"arenas", "best", make<Arenas<BestFit>>},
    {"arenas", "worst", make<Arenas<WorstFit>>},
    {"cached", "first", make<Cached<FirstFit>>},
    {"cached", "best", make<Cached<BestFit>>},
    {"cached", "worst", make<Cached<WorstFit>>},
    {"lockfree", "first", make<LockFree<FirstFit>>},
    {"lockfree", "best", make<LockFree<BestFit>>},
    {"lockfree", "worst", make<LockFree<WorstFit>>},
}};

}  // namespace ts::testing
