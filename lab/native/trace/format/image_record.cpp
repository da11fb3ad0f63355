// See image_record.h.
#include "trace/format/image_record.h"

#include <algorithm>

namespace ts::trace {
namespace {

// What follows the last '/', and not more than the format has room for.
void put_base_name(Bytes& bytes, std::string_view text) {
  text.remove_prefix(text.rfind('/') + 1);  // npos + 1 is 0
  text = text.substr(0, max_name_bytes);
  put_number(bytes, text.size());
  bytes.insert(bytes.end(), text.begin(), text.end());
}

std::string take_name(ByteReader& reader) {
  const ByteSpan bytes = reader.bytes(reader.number());
  return {bytes.begin(), bytes.end()};
}

}  // namespace

Bytes encode_begin(const Image& image) {
  Bytes bytes;
  put_number(bytes, image.parent == no_image ? 0 : std::uint64_t{image.parent} + 1);
  put_number(bytes, static_cast<std::uint64_t>(image.birth));
  put_number(bytes, image.fork_event);
  put_number(bytes, image.first_object);
  put_number(bytes, image.begin_ns);
  put_base_name(bytes, image.program);
  put_base_name(bytes, image.allocator);
  return bytes;
}

bool decode_begin(ByteSpan payload, Image& image) {
  ByteReader reader{payload};
  const std::uint64_t parent = reader.number();
  const std::uint64_t birth = reader.number();
  image.fork_event = reader.number();
  image.first_object = reader.number();
  image.begin_ns = reader.number();
  image.program = take_name(reader);
  image.allocator = take_name(reader);
  image.parent = parent == 0 ? no_image : static_cast<std::uint32_t>(parent - 1);
  image.birth = static_cast<Image::Birth>(birth);
  return reader.is_used_up() && parent <= max_images &&
         birth < static_cast<std::uint64_t>(Image::Birth::unknown) &&
         image.fork_event <= max_events && image.first_object <= max_events;
}

Bytes encode_end(const Image& image) {
  Bytes bytes;
  put_number(bytes, image.events);
  put_number(bytes, image.objects);
  put_number(bytes, image.threads);
  put_number(bytes, image.end_ns);
  put_number(bytes, static_cast<std::uint64_t>(image.end));
  return bytes;
}

bool decode_end(ByteSpan payload, Image& image) {
  ByteReader reader{payload};
  image.events = reader.number();
  image.objects = reader.number();
  image.threads = reader.number();
  image.end_ns = reader.number();
  const std::uint64_t end = reader.number();
  image.end = static_cast<Image::End>(end);
  return reader.is_used_up() && image.events <= max_events && image.objects <= image.events &&
         image.threads >= 1 &&
         image.threads <= std::min<std::uint64_t>(image.events + 1, max_threads) &&
         end <= static_cast<std::uint64_t>(Image::End::killed);
}

}  // namespace ts::trace
