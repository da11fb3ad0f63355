// A correct program that looks like misuse: it replaces only the nothrow `new`, by one that asks
// malloc for more than its caller did. The compiler calls the library's sized `delete`.
#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t more_bytes = 100;
int created = 0;

struct Thing {
  char bytes[48];
  ~Thing() { bytes[0] = 0; }
};

}  // namespace

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++created;
  return std::malloc(bytes + more_bytes);
}

int main() {
  delete new (std::nothrow) Thing;
  if (created == 1) return 0;
  std::puts("the block is not of the program's own new");
  return 1;
}
