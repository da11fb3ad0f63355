// Events and chunks for tests.
#pragma once

#include <zstd.h>

#include <cstdint>
#include <string>

#include "trace/format.h"
#include "trace/slots.h"
#include "trace/writer.h"

namespace ts::trace::testing {

inline Event event_of(Kind kind, std::uint32_t thread, Slot slot = {}, std::uint64_t size = 0) {
  Event event;
  event.kind = kind;
  event.thread = thread;
  event.slot = slot.number;
  event.generation = slot.generation;
  event.size = size;
  return event;
}

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// One frame with this chunk, and a correct checksum.
inline std::string frame_of(const ChunkHeader& header, const std::string& body) {
  const std::string plain = bytes_of(header) + body;
  std::string packed(ZSTD_compressBound(plain.size()), '\0');
  ZSTD_CCtx* const compressor = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(compressor, ZSTD_c_checksumFlag, 1);
  packed.resize(
      ZSTD_compress2(compressor, packed.data(), packed.size(), plain.data(), plain.size()));
  ZSTD_freeCCtx(compressor);
  return packed;
}

}  // namespace ts::trace::testing
