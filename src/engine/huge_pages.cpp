#include "engine/huge_pages.h"

#include <atomic>

#include "os/os.h"

namespace ts::engine {
namespace {

// relaxed: a thread that reads it late leaves a hint in place, which costs memory at worst
constinit std::atomic<bool> were_asked_for{false};

}  // namespace

void ask_for_huge_pages(void* begin, std::size_t bytes) noexcept {
  were_asked_for.store(true, std::memory_order_relaxed);
  os::prefer_huge_pages(begin, bytes);
}

void refuse_huge_pages(void* begin, std::size_t bytes) noexcept {
  os::refuse_huge_pages(begin, bytes);
}

void refuse_inherited_huge_pages(void* begin, std::size_t bytes) noexcept {
  if (were_asked_for.load(std::memory_order_relaxed)) refuse_huge_pages(begin, bytes);
}

}  // namespace ts::engine
