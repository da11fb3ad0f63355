// Large mappings, handed out piece by piece; see address_map.h.
#include "ledger/address_map.h"

#include <sys/mman.h>

#include <cerrno>

namespace ts {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{64}
                                    << 20;  // address space; pages come when touched
constexpr std::size_t unit_bytes = 16;

struct alignas(unit_bytes) Chunk {
  std::atomic<std::size_t> used_bytes;  // any: pieces of one chunk only have to differ
};

constinit std::atomic<Chunk*> current{nullptr};

void* map(std::size_t bytes) {
  const int saved_errno = errno;
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  // Books are sparse: a huge page for each touched word would be most of the machine's memory.
  if (mapped != MAP_FAILED) madvise(mapped, bytes, MADV_NOHUGEPAGE);
  errno = saved_errno;
  return mapped != MAP_FAILED ? mapped : nullptr;
}

// The second of two threads throws its chunk away and takes the first one's.
bool add_chunk(Chunk* full) {
  auto* const fresh = static_cast<Chunk*>(map(chunk_bytes));
  if (fresh == nullptr) return false;
  fresh->used_bytes.store(sizeof(Chunk), std::memory_order_relaxed);
  // release: pairs with the acquire in own_memory; the chunk's first word is seen
  if (!current.compare_exchange_strong(full, fresh, std::memory_order_release,
                                       std::memory_order_relaxed)) {
    munmap(fresh, chunk_bytes);
  }
  return true;
}

}  // namespace

void* own_memory(std::size_t bytes) {
  const std::size_t rounded = (bytes + unit_bytes - 1) / unit_bytes * unit_bytes;
  for (;;) {
    Chunk* const chunk = current.load(std::memory_order_acquire);
    if (chunk != nullptr) {
      const std::size_t offset = chunk->used_bytes.fetch_add(rounded, std::memory_order_relaxed);
      if (offset + rounded <= chunk_bytes) return reinterpret_cast<unsigned char*>(chunk) + offset;
    }
    if (!add_chunk(chunk)) return map(rounded);  // a limit on address space: as little as will do
  }
}

}  // namespace ts
