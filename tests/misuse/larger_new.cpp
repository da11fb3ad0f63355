// Correct programs that look like misuse: they replace an operator new by one that asks malloc for
// more than its caller did, but not the sized delete, which the compiler calls. That passes a size
// smaller than the block, and is right to (C++20, [new.delete.single] 12). One program replaces
// plain new and delete; the other only nothrow new (NOTHROW_NEW).
#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t more_bytes = 100;
int calls = 0;  // of what the program replaces

struct Thing {
  char bytes[48];
  ~Thing() { bytes[0] = 0; }
};

}  // namespace

#ifdef NOTHROW_NEW
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++calls;
  return std::malloc(bytes + more_bytes);
}
#else
void* operator new(std::size_t bytes) {
  void* const block = std::malloc(bytes + more_bytes);
  if (block == nullptr) throw std::bad_alloc{};
  return block;
}

void operator delete(void* block) noexcept {
  ++calls;
  std::free(block);
}
#endif

int main() {
#ifdef NOTHROW_NEW
  constexpr int expected = 1;
  delete new (std::nothrow) Thing;
#else
  constexpr int expected = 3;
  delete new Thing;
  delete[] new Thing[5];
  Thing* const large = new Thing[10'000];
  delete[] large;
#endif
  if (calls == expected) return 0;
  std::printf("%d of %d blocks came to the program's own operator\n", calls, expected);
  return 1;
}
