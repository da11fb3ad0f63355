// zstd, without ways to be surprised by it.
//
// Why it exists: what is small or does not shrink is stored as it is. The caller of unpack says how
// much must come out, so that no input makes more. What it refuses to do: stream; a column is at
// most some 500 KB.
#pragma once

#include <memory>

#include "trace/format/bytes.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace ts::trace {

class Packer {
 public:
  Packer();
  // Appends `plain` packed, or as it is where that is not longer; returns how many bytes it
  // appended.
  std::size_t append(Bytes& to, ByteSpan plain);

 private:
  struct Free {
    void operator()(ZSTD_CCtx_s* context) const;
  };
  std::unique_ptr<ZSTD_CCtx_s, Free> context_;
};

class Unpacker {
 public:
  Unpacker();
  // Appends exactly `plain_bytes` bytes to `to`; if `coded` is not exactly that, returns false.
  bool append(Bytes& to, ByteSpan coded, std::size_t plain_bytes);

 private:
  struct Free {
    void operator()(ZSTD_DCtx_s* context) const;
  };
  std::unique_ptr<ZSTD_DCtx_s, Free> context_;
};

}  // namespace ts::trace
