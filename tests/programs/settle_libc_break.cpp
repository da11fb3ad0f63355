#include <malloc.h>

#include <climits>
#include <cstdlib>

#include "programs/allocator.h"

namespace ts::test {

void settle_libc_break() {
  constexpr int enough_bytes = 16 << 20;
  ::mallopt(M_MMAP_THRESHOLD, 2 * enough_bytes);
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
  // Written to, lest the compiler remove a pair without effect.
  auto* volatile block = static_cast<char*>(std::malloc(enough_bytes));
  std::free(block);
}

}  // namespace ts::test
