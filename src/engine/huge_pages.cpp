#include "engine/huge_pages.h"

#include <atomic>

#include "engine/page_map.h"
#include "os/os.h"

namespace ts::engine {
namespace {

// relaxed: a thread that reads it late leaves a hint in place, which costs memory at worst
constinit std::atomic<bool> were_asked_for{false};
// relaxed: likewise; set under the lock of the page heap
constinit std::atomic<bool> slabs_asked{false};

}  // namespace

void ask_for_huge_pages(void* begin, std::size_t bytes) noexcept {
  were_asked_for.store(true, std::memory_order_relaxed);
  os::prefer_huge_pages(begin, bytes);
}

void refuse_huge_pages(void* begin, std::size_t bytes) noexcept {
  os::refuse_huge_pages(begin, bytes);
}

void ask_for_huge_slab_pages(void* begin, std::size_t bytes) noexcept {
  slabs_asked.store(true, std::memory_order_relaxed);
  ask_for_huge_pages(begin, bytes);
}

void refuse_huge_slab_pages() noexcept {
  if (!slabs_asked.load(std::memory_order_relaxed)) return;
  slabs_asked.store(false, std::memory_order_relaxed);
  refuse_all_huge_pages();
}

void refuse_all_huge_pages() noexcept {
  const std::size_t pages = page_map.page_count.load(std::memory_order_relaxed);
  refuse_huge_pages(memory_of(page_map.spans), pages * page_bytes);
}

void refuse_inherited_huge_pages(void* begin, std::size_t bytes) noexcept {
  if (were_asked_for.load(std::memory_order_relaxed)) refuse_huge_pages(begin, bytes);
}

}  // namespace ts::engine
