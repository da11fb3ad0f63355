// Goes through the chunks of one image; see reader.h.
#include <algorithm>
#include <utility>

#include "trace/format/reader.h"

namespace ts::trace {
namespace {

constexpr std::size_t batch_events = 512;

}  // namespace

Cursor::Cursor(const Reader& reader, std::size_t place, std::uint64_t from_event)
    : reader_{reader},
      image_{reader.contents_.images[place].number},
      chunks_{reader.contents_.chunks[place]},
      next_event_{from_event} {
  const auto ends_before = [this](std::uint32_t chunk, std::uint64_t event) {
    return reader_.list_.chunks[chunk].header.events_end() <= event;
  };
  next_chunk_ = static_cast<std::size_t>(
      std::lower_bound(chunks_.events.begin(), chunks_.events.end(), from_event, ends_before) -
      chunks_.events.begin());
}

// Gaps that follow on each other are one.
void Cursor::lose(std::uint64_t up_to, std::string why) {
  if (!gap_) gap_ = Gap{.first_event = next_event_, .events = 0, .text = std::move(why)};
  gap_->events = up_to - gap_->first_event;
  next_event_ = up_to;
}

void Cursor::skip_to(std::uint64_t event) {
  Event skipped[64];
  while (next_event_ < event && decoder_.remaining() > 0) {
    const std::uint64_t wanted = std::min<std::uint64_t>(event - next_event_, std::size(skipped));
    next_event_ += decoder_.decode({skipped, static_cast<std::size_t>(wanted)});
  }
  next_event_ = std::max(next_event_, event);  // what could not be read before it was not asked for
}

void Cursor::open_chunk() {
  const Chunk& chunk = reader_.list_.chunks[chunks_.events[next_chunk_++]];
  const ChunkHeader& header = chunk.header;
  if (header.first_event > next_event_) {
    const std::uint64_t missing = header.first_event - next_event_;
    lose(header.first_event, events_text(image_, next_event_, missing) + " are missing");
  }
  const char* why = chunk.is_cut ? "it is cut off" : read_payload(reader_.file_, chunk, bytes_);
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

void Cursor::end() {
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

// Returns how many events the next batch has; none at the end.
std::size_t Cursor::decode_batch() {
  for (;;) {
    const std::size_t count = decoder_.decode(batch_);
    next_event_ += count;
    if (count > 0) return count;
    if (decoder_.error() != nullptr && next_event_ < chunk_events_end_) {
      lose(chunk_events_end_, "from event " + std::to_string(next_event_) +
                                  " on, the chunk is damaged (" + decoder_.error() + ")");
    }
    if (next_chunk_ == chunks_.events.size()) break;
    open_chunk();
  }
  end();
  return 0;
}

bool Cursor::refill() {
  if (is_at_end_) return false;
  gap_.reset();
  position_ = 0;
  batch_.resize(batch_events);
  batch_.resize(decode_batch());
  is_at_end_ = batch_.empty();
  return !is_at_end_;
}

}  // namespace ts::trace
