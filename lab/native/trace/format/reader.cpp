// See reader.h.
#include "trace/format/reader.h"

#include <algorithm>
#include <utility>

#include "trace/format/columns.h"
#include "trace/format/trace_file.h"

namespace ts::trace {
namespace {

constexpr std::size_t batch_events = 512;

}  // namespace

// Goes through the chunks of one image.
class Cursor::Impl {
 public:
  Impl(const TraceFile& trace, std::size_t place, std::uint64_t from_event)
      : trace_{trace},
        image_{trace.contents().images[place].number},
        chunks_{trace.contents().chunks[place]},
        next_event_{from_event} {
    const auto ends_before = [this](std::uint32_t chunk, std::uint64_t event) {
      return trace_.chunks()[chunk].header.events_end() <= event;
    };
    next_chunk_ = static_cast<std::size_t>(
        std::lower_bound(chunks_.events.begin(), chunks_.events.end(), from_event, ends_before) -
        chunks_.events.begin());
  }

  // The next events; none at the end.
  void fill(std::vector<Event>& batch);
  std::uint64_t next_event() const { return next_event_; }  // after those of the last batch
  std::optional<Gap> take_gap() { return std::exchange(gap_, std::nullopt); }

 private:
  void open_chunk();
  void skip_to(std::uint64_t event);
  void lose(std::uint64_t up_to, std::string why);
  void end();

  const TraceFile& trace_;
  std::uint32_t image_;
  const ImageChunks& chunks_;
  std::size_t next_chunk_ = 0;
  std::uint64_t next_event_;
  EventDecoder decoder_;
  std::uint64_t chunk_events_end_ = 0;
  Bytes bytes_;
  std::optional<Gap> gap_;
};

// Gaps that follow on each other are one.
void Cursor::Impl::lose(std::uint64_t up_to, std::string why) {
  if (!gap_) gap_ = Gap{.first_event = next_event_, .events = 0, .text = std::move(why)};
  gap_->events = up_to - gap_->first_event;
  next_event_ = up_to;
}

void Cursor::Impl::skip_to(std::uint64_t event) {
  Event skipped[64];
  while (next_event_ < event && decoder_.remaining() > 0) {
    const std::uint64_t wanted = std::min<std::uint64_t>(event - next_event_, std::size(skipped));
    next_event_ += decoder_.decode({skipped, static_cast<std::size_t>(wanted)});
  }
  next_event_ = std::max(next_event_, event);  // nobody asked for what could not be read before it
}

void Cursor::Impl::open_chunk() {
  const Chunk& chunk = trace_.chunks()[chunks_.events[next_chunk_++]];
  const ChunkHeader& header = chunk.header;
  if (header.first_event > next_event_) {
    const std::uint64_t missing = header.first_event - next_event_;
    lose(header.first_event, events_text(image_, next_event_, missing) + " are missing");
  }
  const char* why = chunk.is_cut ? "it is cut off" : read_payload(trace_.file(), chunk, bytes_);
  if (why == nullptr) {
    why = decoder_.begin(header, ByteSpan{bytes_}.subspan(chunk_header_bytes));
  }
  if (why != nullptr) {
    lose(header.events_end(),
         "the chunk of " + contents_text(header) + " is damaged (" + why + ")");
    return;
  }
  const std::uint64_t wanted = next_event_;
  next_event_ = header.first_event;
  chunk_events_end_ = header.events_end();
  skip_to(wanted);
}

void Cursor::Impl::end() {
  const std::uint64_t events_end = chunks_.events_end;
  if (next_event_ < events_end) {
    lose(events_end, events_text(image_, next_event_, events_end - next_event_) + " are missing");
  }
  if (!chunks_.is_end_known && !gap_) {
    gap_ = Gap{.first_event = next_event_,
               .events = 0,
               .text = "how image " + std::to_string(image_) + " went on is not known"};
  }
}

void Cursor::Impl::fill(std::vector<Event>& batch) {
  batch.resize(batch_events);
  for (;;) {
    const std::size_t count = decoder_.decode(batch);
    next_event_ += count;
    if (count > 0) {
      batch.resize(count);
      return;
    }
    if (decoder_.error() != nullptr && next_event_ < chunk_events_end_) {
      lose(chunk_events_end_, "from event " + std::to_string(next_event_) +
                                  " on, the chunk is damaged (" + decoder_.error() + ")");
    }
    if (next_chunk_ == chunks_.events.size()) break;
    open_chunk();
  }
  end();
  batch.clear();
}

Cursor::Cursor(std::unique_ptr<Impl> impl) : impl_{std::move(impl)} {}
Cursor::Cursor(Cursor&&) noexcept = default;
Cursor& Cursor::operator=(Cursor&&) noexcept = default;
Cursor::~Cursor() = default;

bool Cursor::refill() {
  if (is_at_end_) return false;
  impl_->fill(batch_);
  position_ = 0;
  batch_first_event_ = impl_->next_event() - batch_.size();
  std::optional<Gap> gap = impl_->take_gap();
  has_gap_before_batch_ = gap.has_value();
  gap_ = has_gap_before_batch_;
  if (gap) gap_before_batch_ = std::move(*gap);
  is_at_end_ = batch_.empty();
  return !is_at_end_;
}

Reader::Reader(const std::string& path) : file_{std::make_unique<TraceFile>(path)} {}
Reader::~Reader() = default;
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;

const std::vector<Image>& Reader::images() const { return file_->contents().images; }
const std::vector<Damage>& Reader::damage() const { return file_->damage(); }
void Reader::verify() { file_->verify(); }
std::uint64_t Reader::file_bytes() const { return file_->file().size(); }

const Image* Reader::find_image(std::uint32_t number) const {
  const std::size_t place = file_->find(number);
  return place == images().size() ? nullptr : &images()[place];
}

std::uint64_t Reader::chunks() const {
  std::uint64_t chunks = 0;
  for (const ImageChunks& of_image : file_->contents().chunks) chunks += of_image.events.size();
  return chunks;
}

Cursor Reader::events(std::uint32_t image, std::uint64_t from_event) const {
  const std::size_t place = file_->find(image);
  if (place == images().size()) {
    const std::string known = images().empty()
                                  ? "there is none"
                                  : "the last is " + std::to_string(images().back().number);
    throw Error{"the trace has no image " + std::to_string(image) + ": " + known +
                ". `trace info` lists them."};
  }
  return Cursor{std::make_unique<Cursor::Impl>(*file_, place, from_event)};
}

void require_whole(const Reader& reader, const std::string& path) {
  if (reader.is_whole()) return;
  throw Error{"'" + path + "' is damaged: " + reader.damage().front().text +
              " This needs a whole trace; `trace check` lists all that is wrong."};
}

}  // namespace ts::trace
