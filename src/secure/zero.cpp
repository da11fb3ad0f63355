#include "secure/zero.h"

#include <cstdint>
#include <cstring>

#include "base/bits.h"
#include "secure/size_classes.h"

namespace ts::secure {

void make_zero(std::byte* begin, std::size_t bytes) noexcept {
  if (bytes < min_page_bytes) {
    std::memset(begin, 0, bytes);
    return;
  }
  std::byte* const end = begin + bytes;
  while (begin != end) {
    const std::size_t to_page = min_page_bytes - address_of(begin) % min_page_bytes;
    const auto left = static_cast<std::size_t>(end - begin);
    const std::size_t here = to_page < left ? to_page : left;
    if (!is_zero(begin, here)) std::memset(begin, 0, here);
    begin += here;
  }
}

}  // namespace ts::secure
