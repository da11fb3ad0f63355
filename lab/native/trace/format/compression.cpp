#include "trace/format/compression.h"

#include <zstd.h>

#include <new>

namespace ts::trace {
namespace {

constexpr int level = 3;
constexpr std::size_t least_packed_bytes = 24;  // a zstd frame has some 12 bytes of its own

}  // namespace

void Packer::Free::operator()(ZSTD_CCtx_s* context) const { ZSTD_freeCCtx(context); }
void Unpacker::Free::operator()(ZSTD_DCtx_s* context) const { ZSTD_freeDCtx(context); }

Packer::Packer() : context_{ZSTD_createCCtx()} {
  if (context_ == nullptr) throw std::bad_alloc{};
}

std::size_t Packer::append(Bytes& to, ByteSpan plain) {
  const std::size_t before = to.size();
  if (plain.size() >= least_packed_bytes) {
    to.resize(before + ZSTD_compressBound(plain.size()));
    const std::size_t size = ZSTD_compressCCtx(
        context_.get(), to.data() + before, to.size() - before, plain.data(), plain.size(), level);
    if (ZSTD_isError(size) == 0 && size < plain.size()) {
      to.resize(before + size);
      return size;
    }
    to.resize(before);
  }
  to.insert(to.end(), plain.begin(), plain.end());
  return plain.size();
}

Unpacker::Unpacker() : context_{ZSTD_createDCtx()} {
  if (context_ == nullptr) throw std::bad_alloc{};
}

bool Unpacker::append(Bytes& to, ByteSpan coded, std::size_t plain_bytes) {
  if (coded.size() > plain_bytes) return false;
  if (coded.size() == plain_bytes) {
    to.insert(to.end(), coded.begin(), coded.end());
    return true;
  }
  const std::size_t before = to.size();
  to.resize(before + plain_bytes);
  const std::size_t size = ZSTD_decompressDCtx(context_.get(), to.data() + before, plain_bytes,
                                               coded.data(), coded.size());
  return ZSTD_isError(size) == 0 && size == plain_bytes;
}

}  // namespace ts::trace
