// A correct program that looks like misuse: it replaces plain `new` by one that asks malloc for
// more than its caller did, and `delete`, but not the sized `delete`, which the compiler calls.
// That passes a size smaller than the block, and is right to (C++20, [new.delete.single] 12).
#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t more_bytes = 100;
int freed = 0;

struct Thing {
  char bytes[48];
  ~Thing() { bytes[0] = 0; }
};

}  // namespace

void* operator new(std::size_t bytes) {
  void* const block = std::malloc(bytes + more_bytes);
  if (block == nullptr) throw std::bad_alloc{};
  return block;
}

void operator delete(void* block) noexcept {
  ++freed;
  std::free(block);
}

int main() {
  delete new Thing;
  delete[] new Thing[5];
  Thing* const large = new Thing[10'000];
  delete[] large;
  if (freed == 3) return 0;
  std::printf("%d of 3 blocks came to the program's own delete\n", freed);
  return 1;
}
