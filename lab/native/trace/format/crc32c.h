// CRC-32C (Castagnoli), the checksum of a trace's parts.
#pragma once

#include <cstdint>

#include "trace/format/bytes.h"

namespace ts::trace {

std::uint32_t crc32c(ByteSpan bytes);

}  // namespace ts::trace
