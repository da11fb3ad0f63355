// The payloads of the chunks at an image's begin and end.
#pragma once

#include "trace/format/bytes.h"
#include "trace/format/event.h"

namespace ts::trace {

Bytes encode_begin(const Image& image);
Bytes encode_end(const Image& image);

// Fill what each tells; false where it holds what no writer writes.
bool decode_begin(ByteSpan payload, Image& image);
bool decode_end(ByteSpan payload, Image& image);

}  // namespace ts::trace
