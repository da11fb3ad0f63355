#include "secure/zero.h"

#include <cstdint>
#include <cstring>

#include "base/bits.h"
#include "secure/size_classes.h"

namespace ts::secure {

bool is_zero(const std::byte* begin, std::size_t bytes) noexcept {
  using Words = std::uint64_t __attribute__((vector_size(32)));
  const std::byte* const end = begin + bytes;
  while (static_cast<std::size_t>(end - begin) >= 2 * sizeof(Words)) {
    Words words[2];
    std::memcpy(words, begin, sizeof words);
    words[0] |= words[1];
    if ((words[0][0] | words[0][1] | words[0][2] | words[0][3]) != 0) return false;
    begin += sizeof words;
  }
  std::uint64_t any = 0;
  for (; begin != end; begin += sizeof any) {
    std::uint64_t word = 0;
    std::memcpy(&word, begin, sizeof word);
    any |= word;
  }
  return any == 0;
}

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
