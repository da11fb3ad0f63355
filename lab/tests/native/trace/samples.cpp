// See samples.h.
#include "samples.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "trace/format/bytes.h"

namespace ts::trace::testing {

MemoryFile::MemoryFile(ByteSpan bytes) : descriptor_{memfd_create("trace", MFD_CLOEXEC)} {
  if (descriptor_ < 0) throw std::runtime_error{"no memory for a file"};
  path_ = "/proc/self/fd/" + std::to_string(descriptor_);
  set(bytes);
}

MemoryFile::~MemoryFile() { close(descriptor_); }

void MemoryFile::set(ByteSpan bytes) {
  const bool is_done =
      ftruncate(descriptor_, 0) == 0 &&
      pwrite(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
  if (!is_done) throw std::runtime_error{"no memory for a file"};
}

Bytes MemoryFile::bytes(std::size_t from) const {
  struct stat status {};
  fstat(descriptor_, &status);
  Bytes bytes(static_cast<std::size_t>(status.st_size) - from);
  if (pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(from)) !=
      static_cast<ssize_t>(bytes.size())) {
    throw std::runtime_error{"a file in memory cannot be read"};
  }
  return bytes;
}

// As many bits as chance says, so that small and large ones are equally frequent.
std::uint64_t RandomEvents::any_number() {
  const std::uint64_t number = random_();
  return number >> below(64);
}

Event RandomEvents::next() {
  Event event;
  event.kind = static_cast<Kind>(below(static_cast<std::uint64_t>(Kind::count)));
  const bool refers_to_object = event.kind == Kind::realloc || event.kind == Kind::free;
  if (refers_to_object && next_object_ == 0) event.kind = Kind::malloc;
  const bool is_new_thread = threads_ == 0 || (event.kind == Kind::thread_begin && below(4) == 0);
  if (is_new_thread) {
    event.thread = threads_++;
  } else if (below(3) != 0) {
    event.thread = static_cast<std::uint32_t>(below(threads_));
  }
  if (makes_object(event.kind)) {
    event.object = next_object_++;
  } else if (event.kind == Kind::realloc || event.kind == Kind::free) {
    event.object = below(4) == 0
                       ? below(next_object_)
                       : next_object_ - 1 - below(std::min<std::uint64_t>(next_object_, 9));
  } else if (event.kind == Kind::thread_begin) {
    event.object = below(threads_);
  } else if (event.kind == Kind::fork) {
    event.object = below(max_images);
  }
  if (has_size(event.kind)) event.size = any_number();
  if (event.kind == Kind::aligned) {
    event.log2_alignment = static_cast<std::uint8_t>(below(max_log2_alignment + 1));
  }
  time_ns_ += below(50) == 0 ? random_() : below(200) - 20;  // wraps around: it may be any number
  event.time_ns = time_ns_;
  return event;
}

Event PlausibleEvents::allocation() {
  constexpr std::array<std::uint64_t, 12> sizes{24, 32, 56, 16, 48, 64, 72, 40, 128, 88, 512, 1032};
  Event event;
  event.kind = random_() % 20 == 0 ? Kind::calloc : Kind::malloc;
  event.object = next_object_++;
  if (random_() % 4 == 0) {  // a string
    event.size = 9 + random_() % 60 + (random_() % 16 == 0 ? random_() % 4'000 : 0);
  } else {
    event.size = sizes[std::min(random_() % sizes.size(), random_() % sizes.size())];
  }
  live_.push_back(event.object);
  return event;
}

Event PlausibleEvents::release() {
  Event event;
  event.kind = Kind::free;
  std::size_t place =
      live_.size() - 1 - std::min(live_.size() - 1, random_() % 8 * (random_() % 4));
  if (tear_down_ > 0) {
    --tear_down_;
    place = 0;
  } else if (random_() % 20'000 == 0) {
    tear_down_ = live_.size() / 2;
  }
  event.object = live_[place];
  live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(place));
  return event;
}

Event PlausibleEvents::next() {
  if (threads_ > 1 && random_() % 30 == 0)
    thread_ = static_cast<std::uint32_t>(random_() % threads_);
  thread_ = std::min(thread_, seen_threads_);
  seen_threads_ = std::max(seen_threads_, thread_ + 1);
  const bool allocates = live_.empty() || (tear_down_ == 0 && random_() % 100 < 51);
  Event event = allocates ? allocation() : release();
  event.thread = thread_;
  std::lognormal_distribution<double> nanoseconds{4.2, 0.5};
  time_ns_ += static_cast<std::uint64_t>(nanoseconds(random_));
  event.time_ns = time_ns_;
  return event;
}

Sample make_sample(std::uint64_t seed, std::size_t chunks, std::size_t events_per_chunk,
                   bool is_finished) {
  Sample sample;
  MemoryFile file;
  Writer writer = Writer(file.path(), true);
  Image root;
  root.program = "first";
  root.allocator = "libone.so";
  Image child;
  child.birth = Image::Birth::fork;
  child.parent = 0;
  child.fork_event = 3;
  child.first_object = 7;
  child.begin_ns = ~0ULL;
  child.program = "second";
  child.allocator = "libtwo.so";
  sample.images = {root, child};
  std::vector<RandomEvents> sources;
  for (Image& image : sample.images) {
    image.number = writer.begin_image(image);
    sources.emplace_back(seed + image.number, image.first_object);
  }
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    for (std::size_t i = 0; i < 2 * events_per_chunk; ++i) {
      const auto number = static_cast<std::uint32_t>(i % 2);
      const Event event = sources[number].next();
      writer.add(number, event);
      sample.events[number].push_back(event);
    }
    writer.flush();
  }
  for (Image& image : sample.images) {
    image.end = image.number == 0 ? Image::End::exited : Image::End::killed;
    image.end_ns = 77;
    writer.end_image(image.number, image.end, image.end_ns);
    for (const Event& event : sample.events[image.number]) {
      ++image.events;
      if (makes_object(event.kind)) ++image.objects;
      image.threads = std::max<std::uint64_t>(image.threads, event.thread + 1ULL);
    }
  }
  if (is_finished) writer.finish();
  sample.bytes = file.bytes();
  return sample;
}

std::vector<PlacedChunk> chunks_of(ByteSpan bytes, std::size_t offset) {
  std::vector<PlacedChunk> chunks;
  while (offset < bytes.size()) {
    const auto header = decode_chunk_header(bytes.subspan(offset));
    if (!header) break;
    chunks.push_back({offset, *header});
    offset = chunks.back().end();
  }
  return chunks;
}

namespace {

template <typename Magic>
bool is_at(const Bytes& bytes, std::size_t offset, const Magic& magic) {
  return offset + magic.size() <= bytes.size() &&
         std::equal(magic.begin(), magic.end(),
                    bytes.begin() + static_cast<std::ptrdiff_t>(offset));
}

void seal(Bytes& bytes, std::size_t offset, std::size_t size) {
  store(&bytes[offset + size - 4], crc32c({&bytes[offset], size - 4}));
}

}  // namespace

void repair_checksums(Bytes& bytes) {
  if (bytes.size() < file_header_bytes) return;
  seal(bytes, 0, file_header_bytes);
  std::size_t offset = file_header_bytes;
  while (offset + footer_bytes <= bytes.size()) {
    const std::size_t payload = offset + chunk_header_bytes;
    if (is_at(bytes, offset, footer_magic)) seal(bytes, offset, footer_bytes);
    if (!is_at(bytes, offset, chunk_magic) || payload > bytes.size()) {
      ++offset;
      continue;
    }
    const std::size_t coded = load<std::uint32_t>(&bytes[offset + 60]);
    const std::size_t size = std::min(coded, bytes.size() - payload);
    store(&bytes[offset + 64], crc32c({bytes.data() + payload, size}));
    seal(bytes, offset, chunk_header_bytes);
    // An index has copies of headers, which are not to be looked at; but a size may be a lie.
    const std::size_t end = payload + size;
    offset = is_at(bytes, end, chunk_magic) || is_at(bytes, end, footer_magic) ? end : offset + 1;
  }
}

void rebuild_index(Bytes& bytes) {
  std::vector<PlacedChunk> chunks = chunks_of(bytes);
  std::erase_if(chunks, [](const PlacedChunk& chunk) {
    return chunk.header.type == ChunkType::index || find_lie(chunk.header) != nullptr;
  });
  Footer footer;
  footer.index_offset = file_header_bytes;
  Bytes payload;
  for (const PlacedChunk& chunk : chunks) {
    if (chunk.offset != footer.index_offset || chunk.end() > bytes.size()) break;
    footer.index_offset = chunk.end();
    ++footer.chunks;
    footer.images = std::max(footer.images, chunk.header.image + 1);
    if (chunk.header.type == ChunkType::events) footer.events += chunk.header.count;
    payload.resize(payload.size() + chunk_header_bytes);
    encode(chunk.header, &payload[payload.size() - chunk_header_bytes]);
  }
  if (bytes.size() < footer.index_offset) return;
  bytes.resize(footer.index_offset);
  if (footer.chunks > 0) {
    ChunkHeader header;
    header.type = ChunkType::index;
    header.count = footer.chunks;
    header.plain_bytes = header.coded_bytes = static_cast<std::uint32_t>(payload.size());
    header.payload_crc = crc32c(payload);
    footer.index_chunks = 1;
    bytes.resize(bytes.size() + chunk_header_bytes);
    encode(header, &bytes[bytes.size() - chunk_header_bytes]);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
  }
  const auto end = encode(footer);
  bytes.insert(bytes.end(), end.begin(), end.end());
}

}  // namespace ts::trace::testing
