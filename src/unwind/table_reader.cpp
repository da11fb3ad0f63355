// Variable-length numbers, and pointers.
#include "unwind/table_reader.h"

#include <cstring>

namespace ts::os {

void TableReader::read_to(void* value, std::size_t bytes) noexcept {
  if (bytes > end_ - at_ || !memory_.holds(at_, bytes)) return fail();
  std::memcpy(value, reinterpret_cast<const void*>(at_), bytes);
  at_ += bytes;
}

std::uint8_t TableReader::byte() noexcept { return read<std::uint8_t>(); }

std::uint64_t TableReader::number(bool is_signed) noexcept {
  std::uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    const std::uint8_t next = byte();
    if (shift < 64) value |= std::uint64_t{next & 0x7fU} << shift;
    if ((next & 0x80) != 0) continue;
    if (is_signed && (next & 0x40) != 0 && shift + 7 < 64)
      value |= ~std::uint64_t{0} << (shift + 7);
    return value;
  }
}

std::uint64_t TableReader::unsigned_number() noexcept { return number(false); }
std::int64_t TableReader::signed_number() noexcept {
  return static_cast<std::int64_t>(number(true));
}

std::uint64_t TableReader::formatted(std::uint8_t encoding) noexcept {
  const auto extended = [](auto value) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  };
  switch (encoding & pointer_encoding::format_mask) {
    case 0x00:  // a pointer
    case 0x04:
    case 0x0c:
      return read<std::uint64_t>();
    case 0x01:
      return unsigned_number();
    case 0x02:
      return read<std::uint16_t>();
    case 0x03:
      return read<std::uint32_t>();
    case 0x09:
      return extended(signed_number());
    case 0x0a:
      return extended(read<std::int16_t>());
    case pointer_encoding::signed_4:
      return extended(read<std::int32_t>());
    default:
      fail();
      return 0;
  }
}

std::uintptr_t TableReader::pointer(std::uint8_t encoding, std::uintptr_t data_base) noexcept {
  const std::uintptr_t place = at_;
  const std::uint64_t value = formatted(encoding);
  if ((encoding & pointer_encoding::indirect) != 0) fail();
  switch (encoding & pointer_encoding::relation_mask) {
    case pointer_encoding::absolute:
      return value;
    case pointer_encoding::pc_relative:
      return place + value;
    case pointer_encoding::data_relative:
      return data_base + value;
    default:
      fail();
      return 0;
  }
}

}  // namespace ts::os
