// A process with the engine's note, and random bytes in place of its structures, to test that
// `tsmalloc explain`, `stats` and `purge` cope with damage. Usage: broken_image SEED|long
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "engine/inspection.h"

// A symbol of the unwinder, which is not linked.
constinit const ts::os::ModuleTable ts::os::module_table{};

namespace {

using namespace ts::engine;

std::mt19937_64 random_number;

bool one_in(unsigned n) { return random_number() % n == 0; }

void fill(void* begin, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i)
    static_cast<unsigned char*>(begin)[i] = static_cast<unsigned char>(random_number());
}

// Memory of random bytes, of zeros, or unmapped.
template <class T>
T* table(std::size_t bytes) {
  if (one_in(16)) return reinterpret_cast<T*>(random_number());
  void* const p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!one_in(8)) fill(p, bytes);
  return static_cast<T*>(p);
}

// Spans that look valid to a reader, except for some.
void make_plausible(std::size_t pages) {
  for (std::size_t i = 0; i < pages; ++i) {
    Span& span = page_map.spans[i];
    span.pages = one_in(50) ? static_cast<std::uint32_t>(random_number()) : 1 + random_number() % 9;
    span.state = static_cast<SpanState>(random_number() % 5);
    span.size_class = static_cast<std::uint8_t>(random_number() % (class_count + 2));
  }
}

template <class T>
T* reserved(std::size_t count) {
  void* const p = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return static_cast<T*>(p);
}

// One slab of 4 TiB.
void make_a_long_slab() {
  constexpr std::size_t pages = std::size_t{1} << 28;
  page_map.pages = reserved<MapPage>(pages);
  page_map.remote_frees = reserved<RemoteFrees>(1);
  page_map.heaps = reserved<ThreadHeap>(1);
  page_map.spans = reserved<Span>(pages);
  page_map.spans->pages = pages;
  page_map.spans->state = SpanState::slab;
  page_map.page_count = pages;
}

void wait() {
  char line = 0;
  if (write(STDOUT_FILENO, "ready\n", 6) != 6) return;
  while (read(STDIN_FILENO, &line, 1) == 1) continue;
}

}  // namespace

int main(int, char** arguments) {
  random_number.seed(std::strtoull(arguments[1], nullptr, 10));
  leave_inspection_note();
  if (std::strcmp(arguments[1], "long") == 0) {
    make_a_long_slab();
    wait();
    return 0;
  }
  constexpr std::size_t pages = 1 << 12;
  constexpr std::size_t heaps = 20;
  page_map.pages = table<MapPage>(pages * sizeof(MapPage));
  page_map.remote_frees = table<RemoteFrees>(pages * sizeof(RemoteFrees));
  page_map.heaps = table<ThreadHeap>(heaps * sizeof(ThreadHeap));
  auto* const spans = table<Span>(pages * sizeof(Span));
  page_map.spans = spans;
  page_map.base = one_in(8) ? random_number() : reinterpret_cast<std::uintptr_t>(spans);
  page_map.heap_count = static_cast<std::uint32_t>(one_in(8) ? random_number() : heaps - 1);
  if (!one_in(4)) fill(static_cast<void*>(&page_heap), sizeof page_heap);
  if (one_in(2)) page_heap.lock().reset_after_fork();
  fill(static_cast<void*>(&given_back_bytes), sizeof given_back_bytes);
  page_map.page_count = one_in(8) ? random_number() >> random_number() % 64 : pages;
  int ends[2];
  // The kernel tells whether the memory is mapped.
  const bool are_spans = pipe(ends) == 0 && write(ends[1], spans, 1) == 1;
  if (are_spans && !one_in(4)) make_plausible(pages);
  wait();
}
