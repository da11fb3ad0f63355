#include "trace/format/contents.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "trace/format/layout.h"

namespace ts::trace {
namespace {

constexpr char left_out[] = ". It is left out; whatever wrote it has a defect.";

// What is known of an image while the chunks are gone through.
struct Known {
  Image image;  // events, objects, threads, end_ns: of the chunks so far
  ImageChunks chunks;
  Image end;  // what its last chunk tells
  bool has_begin = false;
  bool has_end = false;
  bool is_begin_told = false;  // to be damaged
  bool is_end_told = false;
  bool has_gap = false;

  std::uint64_t next_object() const { return image.first_object + image.objects; }
};

class Gathering {
 public:
  Gathering(const InputFile& file, const ChunkList& list, Damages& damages)
      : file_{file}, list_{list}, damages_{damages} {}

  Contents run() &&;

 private:
  void take(std::uint32_t position);
  void take_record(const Chunk& chunk, Known& known);
  void take_events(std::uint32_t position, Known& known);
  const char* find_contradiction(const ChunkHeader& header, const Known& known) const;
  void conclude(Known& known);
  void conclude_end(Known& known);
  void tell_missing_images();

  const InputFile& file_;
  const ChunkList& list_;
  Damages& damages_;
  std::map<std::uint32_t, Known> known_;
  Bytes bytes_;
};

void Gathering::take_record(const Chunk& chunk, Known& known) {
  const bool is_begin = chunk.header.type == ChunkType::image_begin;
  const std::string what = contents_text(chunk.header);
  if (is_begin ? known.has_begin : known.has_end) {
    damages_.add(chunk.offset, chunk.end() - chunk.offset, 0,
                 what + " is there once more" + left_out);
    return;
  }
  Image image;
  const char* why = chunk.is_cut ? "it is cut off" : read_payload(file_, chunk, bytes_);
  if (why == nullptr) {
    const ByteSpan payload = ByteSpan{bytes_}.subspan(chunk_header_bytes);
    const bool is_good = is_begin ? decode_begin(payload, image) : decode_end(payload, image);
    const bool is_child_of_later = image.parent != no_image && image.parent >= chunk.header.image;
    if (!is_good || is_child_of_later) why = "it tells what cannot be";
  }
  if (why != nullptr) {
    (is_begin ? known.is_begin_told : known.is_end_told) = true;
    if (chunk.is_cut) return;
    damages_.add(chunk.offset, chunk.end() - chunk.offset, 0,
                 what + " is damaged (" + why + "): " +
                     (is_begin ? "its program, allocator and parent are lost."
                               : "how and when it ended is lost."));
    return;
  }
  if (!is_begin) {
    known.end = image;
    known.has_end = true;
    return;
  }
  known.has_begin = true;
  image.number = known.image.number;
  image.events = known.image.events;  // of chunks that come before: none in a whole file
  image.objects = known.image.objects;
  image.threads = known.image.threads;
  image.end_ns = known.image.end_ns;
  known.image = std::move(image);
}

const char* Gathering::find_contradiction(const ChunkHeader& header, const Known& known) const {
  if (header.first_event < known.image.events) return "they are there once more";
  const std::uint64_t missing = header.first_event - known.image.events;
  const bool is_base_known = known.has_begin || !known.chunks.events.empty();
  const bool fits = header.first_object >= known.next_object() &&
                    header.first_object - known.next_object() <= missing;
  if (is_base_known && !fits) return "their objects do not follow from those before";
  if (header.threads < known.image.threads ||
      header.threads - known.image.threads > missing + header.count) {
    return "their threads do not follow from those before";
  }
  return nullptr;
}

void Gathering::take_events(std::uint32_t position, Known& known) {
  const Chunk& chunk = list_.chunks[position];
  const ChunkHeader& header = chunk.header;
  if (const char* const why = find_contradiction(header, known)) {
    damages_.add(chunk.offset, chunk.end() - chunk.offset, 0,
                 "a chunk of " + contents_text(header) + " cannot be used: " + why + left_out);
    return;
  }
  if (const std::uint64_t missing = header.first_event - known.image.events) {
    known.has_gap = true;
    damages_.add(chunk.offset, 0, missing,
                 events_text(header.image, known.image.events, missing) +
                     " are missing before this chunk. Record again if they matter.");
  }
  if (!known.has_begin && known.chunks.events.empty()) {
    known.image.first_object = header.first_object;
  }
  known.chunks.events.push_back(position);
  known.image.events = header.events_end();
  known.image.objects = header.objects_end() - known.image.first_object;
  known.image.threads = header.threads;
  known.image.end_ns = std::max(known.image.end_ns, header.last_time_ns);
}

void Gathering::take(std::uint32_t position) {
  const Chunk& chunk = list_.chunks[position];
  const ChunkType type = chunk.header.type;
  const bool is_record = type == ChunkType::image_begin || type == ChunkType::image_end;
  if (!is_record && type != ChunkType::events) return;
  auto [found, is_new] = known_.try_emplace(chunk.header.image);
  Known& known = found->second;
  if (is_new) {
    known.image.number = chunk.header.image;
    known.image.birth = Image::Birth::unknown;
    known.image.threads = 1;  // that with which it began
  }
  if (is_record) {
    take_record(chunk, known);
  } else {
    take_events(position, known);
  }
}

// The image's last chunk against the others.
void Gathering::conclude_end(Known& known) {
  Image& image = known.image;
  const Image& end = known.end;
  const bool is_less =
      end.events < image.events || end.objects < image.objects || end.threads < image.threads;
  const bool is_same =
      end.events == image.events && end.objects == image.objects && end.threads == image.threads;
  const std::string of_image = " of image " + std::to_string(image.number);
  if (is_less || (end.events == image.events && known.has_begin && !known.has_gap && !is_same)) {
    damages_.add(file_.size(), 0, 0, "the end" + of_image + " contradicts its events" + left_out);
    return;
  }
  if (const std::uint64_t missing = end.events - image.events) {
    damages_.add(file_.size(), 0, missing,
                 events_text(image.number, image.events, missing) +
                     ", its last, are missing. Record again if they matter.");
  }
  image.events = end.events;
  image.objects = end.objects;
  image.threads = end.threads;
  image.end_ns = end.end_ns;
  image.end = end.end;
  known.chunks.is_end_known = true;
}

void Gathering::conclude(Known& known) {
  const std::string number = std::to_string(known.image.number);
  if (!known.has_begin && !known.is_begin_told) {
    damages_.add(file_.size(), 0, 0,
                 "the begin of image " + number +
                     " is missing: its program, allocator and parent are not known.");
  }
  if (known.has_end) {
    conclude_end(known);
  } else if (list_.footer && !known.is_end_told) {
    damages_.add(file_.size(), 0, 0,
                 "the end of image " + number + " is missing: how it ended is not known.");
  }
  known.chunks.events_end = known.image.events;
}

void Gathering::tell_missing_images() {
  const auto tell_range = [this](std::uint64_t first, std::uint64_t end) {
    if (first >= end) return;
    const std::string which = end - first == 1 ? "image " + std::to_string(first) + " is"
                                               : "images " + std::to_string(first) + " to " +
                                                     std::to_string(end - 1) + " are";
    damages_.add(file_.size(), 0, 0, which + " missing wholly. Record again if they matter.");
  };
  std::uint64_t next = 0;
  std::uint64_t events = 0;
  for (const auto& [number, known] : known_) {
    tell_range(next, number);
    next = number + 1ULL;
    events += known.image.events;
  }
  if (!list_.footer) return;
  tell_range(next, list_.footer->images);
  if (list_.footer->images < next || list_.footer->events != events) {
    const std::uint64_t missing = list_.footer->events > events ? list_.footer->events - events : 0;
    damages_.add(file_.size(), 0, missing,
                 "the footer tells of " + count_text(list_.footer->images, "image") + " with " +
                     count_text(list_.footer->events, "event") + " in all, and the chunks of " +
                     count_text(known_.size(), "image") + " with " + count_text(events, "event") +
                     ".");
  }
}

Contents Gathering::run() && {
  const auto count = static_cast<std::uint32_t>(list_.chunks.size());
  for (std::uint32_t position = 0; position < count; ++position) take(position);
  for (auto& [number, known] : known_) conclude(known);
  tell_missing_images();
  Contents contents;
  contents.images.reserve(known_.size());
  contents.chunks.reserve(known_.size());
  for (auto& [number, known] : known_) {
    contents.images.push_back(std::move(known.image));
    contents.chunks.push_back(std::move(known.chunks));
  }
  return contents;
}

}  // namespace

Contents read_contents(const InputFile& file, const ChunkList& list, Damages& damages) {
  return Gathering{file, list, damages}.run();
}

}  // namespace ts::trace
