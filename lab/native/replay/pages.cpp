// Maps pages, and counts what is replay's own; see pages.h.
#include "replay/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "common/system.h"

namespace ts::replay {
namespace {

// relaxed: a sum that is read for a report, by a thread that has waited for all that add to it, or
// as an estimate.
constinit std::atomic<std::uint64_t> resident{0};

constexpr std::size_t max_remembered = 4096;
constinit PageRange* remembered = nullptr;
constinit std::atomic<std::size_t> remembered_count{0};

std::size_t page_bytes() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

std::size_t whole_pages(std::size_t bytes) {
  const std::size_t page = page_bytes();
  return (bytes / page + 1) * page;  // at least one
}

void remember(void* pages, std::size_t bytes) {
  if (remembered == nullptr) return;
  // relaxed: read when all threads have ended
  const std::size_t place = remembered_count.fetch_add(1, std::memory_order_relaxed);
  const auto begin = reinterpret_cast<std::uintptr_t>(pages);
  if (place < max_remembered) remembered[place] = {begin, begin + bytes};
}

}  // namespace

void* map_pages(std::size_t bytes, Backing backing) {
  const std::size_t rounded = whole_pages(bytes);
  const int kind = backing == Backing::shared ? MAP_SHARED : MAP_PRIVATE;
  void* const mapped =
      mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_NORESERVE | kind, -1, 0);
  if (mapped == MAP_FAILED) fail_internal("out of memory for replay's own tables", errno);
  if (backing != Backing::shared) {
    madvise(mapped, rounded, MADV_NOHUGEPAGE);
    remember(mapped, rounded);
  }
  if (backing == Backing::resident_private) make_resident(mapped, rounded);
  return mapped;
}

void unmap_pages(void* pages, std::size_t bytes, Backing backing) {
  const std::size_t rounded = whole_pages(bytes);
  munmap(pages, rounded);
  if (backing == Backing::resident_private) {
    resident.fetch_sub(rounded, std::memory_order_relaxed);
  }
}

void make_resident(void* pages, std::size_t bytes) {
  const std::size_t page = page_bytes();
  auto* const first = static_cast<volatile unsigned char*>(pages);
  for (std::size_t i = 0; i < bytes; i += page) first[i] = 0;
  resident.fetch_add((bytes + page - 1) / page * page, std::memory_order_relaxed);
}

void remember_own() {
  constexpr std::size_t bytes = max_remembered * sizeof(PageRange);
  remembered = static_cast<PageRange*>(map_pages(bytes, Backing::shared));
}

std::span<const PageRange> own_ranges() {
  const std::size_t count = remembered_count.load(std::memory_order_relaxed);
  return {remembered, std::min(count, max_remembered)};
}

std::uint64_t own_bytes() { return resident.load(std::memory_order_relaxed); }

}  // namespace ts::replay
