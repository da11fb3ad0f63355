#include "trace/format/columns.h"

#include "trace/format/layout.h"

namespace ts::trace {
namespace {

// A tag: the kind, and what the columns hold for this event.
constexpr std::uint8_t kind_bits = 0x0f;
constexpr std::uint8_t other_thread = 0x10;  // than that of the event before: it is in the column
constexpr std::uint8_t from_last =
    0x20;  // object: away from the thread's last; else from the newest
constexpr std::uint8_t known_bits = kind_bits | other_thread | from_last;

}  // namespace

Context::Context(std::uint64_t first_object, std::uint64_t first_time_ns)
    : time_ns{first_time_ns}, next_object{first_object} {
  last_objects_.fill(first_object);
}

void EventEncoder::begin(std::uint64_t first_object, std::uint64_t first_time_ns) {
  context_ = Context{first_object, first_time_ns};
}

// Objects that are freed in the order of their making lie side by side, others near the newest.
void EventEncoder::add_object(const Event& event) {
  std::uint64_t& last = context_.last_object(event.thread);
  const std::uint64_t from_newest = context_.next_object - 1 - event.object;
  const std::uint64_t folded = fold_sign(static_cast<std::int64_t>(event.object - last));
  last = event.object;
  if (folded < from_newest) {
    tags_.back() |= from_last;
    objects_.add(folded);
  } else {
    objects_.add(from_newest);
  }
}

void EventEncoder::add(const Event& event) {
  tags_.push_back(static_cast<std::uint8_t>(event.kind));
  if (event.thread != context_.thread) {
    tags_.back() |= other_thread;
    put_number(threads_, event.thread);
    context_.thread = event.thread;
  }
  if (makes_object(event.kind)) ++context_.next_object;
  if (refers_to_object(event.kind)) add_object(event);
  if (refers_to_other(event.kind)) objects_.add(event.object);
  if (has_size(event.kind)) sizes_.add(event.size);
  if (event.kind == Kind::aligned) alignments_.push_back(event.log2_alignment);
  times_.add(fold_sign(static_cast<std::int64_t>(event.time_ns - context_.time_ns)));
  context_.time_ns = event.time_ns;
}

std::uint32_t EventEncoder::end(Bytes& payload, Packer& packer) {
  objects_.end();
  times_.end();
  const std::array<const Bytes*, column_count> columns{
      &tags_,         &threads_,       &objects_.heads(), &objects_.rest(), &sizes_.heads(),
      &sizes_.rest(), &times_.heads(), &times_.rest(),    &alignments_};
  Bytes coded;
  std::size_t plain_bytes = 0;
  for (const Bytes* const column : columns) {
    put_number(payload, column->size());
    put_number(payload, packer.append(coded, *column));
    plain_bytes += column->size();
  }
  payload.insert(payload.end(), coded.begin(), coded.end());
  *this = EventEncoder{};
  return static_cast<std::uint32_t>(plain_bytes);
}

const char* EventDecoder::begin(const ChunkHeader& header, ByteSpan payload) {
  error_ = nullptr;
  remaining_ = 0;
  plain_.clear();
  plain_.reserve(header.plain_bytes);
  ByteReader table{payload};
  std::array<std::uint64_t, column_count> plain_bytes{};
  std::array<std::uint64_t, column_count> coded_bytes{};
  std::uint64_t remaining_bytes = header.plain_bytes;
  for (std::size_t i = 0; i < column_count; ++i) {
    plain_bytes[i] = table.number();
    coded_bytes[i] = table.number();
    if (plain_bytes[i] > remaining_bytes) return "its columns are longer than it says";
    remaining_bytes -= plain_bytes[i];
  }
  if (remaining_bytes != 0) return "its columns are shorter than it says";
  for (std::size_t i = 0; i < column_count; ++i) {
    if (!unpacker_.append(plain_, table.bytes(coded_bytes[i]), plain_bytes[i])) {
      return "a column cannot be unpacked";
    }
  }
  if (!table.is_used_up()) return "its columns do not fill it";

  std::array<ByteSpan, column_count> columns;
  ByteReader plain{plain_};
  for (std::size_t i = 0; i < column_count; ++i) columns[i] = plain.bytes(plain_bytes[i]);
  tags_ = ByteReader{columns[0]};
  threads_ = ByteReader{columns[1]};
  objects_ = SpreadReader{columns[2], columns[3]};
  sizes_ = RepeatedReader{columns[4], columns[5]};
  times_ = SpreadReader{columns[6], columns[7]};
  alignments_ = ByteReader{columns[8]};
  context_ = Context{header.first_object, header.first_time_ns};
  events_end_ = header.events_end();
  objects_end_ = header.objects_end();
  last_time_ns_ = header.last_time_ns;
  thread_end_ = header.threads;
  remaining_ = header.count;
  return nullptr;
}

std::uint64_t EventDecoder::decode_object(std::uint8_t tag, std::uint32_t thread) {
  std::uint64_t& last = context_.last_object(thread);
  const std::uint64_t number = objects_.next();
  if ((tag & from_last) == 0) {
    last = context_.next_object - 1 - number;
  } else {
    last += static_cast<std::uint64_t>(unfold_sign(number));
  }
  return last;
}

void EventDecoder::decode_event(Event& event) {
  const std::uint8_t tag = tags_.byte();
  event = Event{};
  event.kind = static_cast<Kind>(tag & kind_bits);
  if ((tag & ~known_bits) != 0 || event.kind >= Kind::count) {
    error_ = "it holds an event of no known kind";
    return;
  }
  if ((tag & other_thread) != 0) {
    const std::uint64_t thread = threads_.number();
    // Each event can be the first of one thread more, and the image begins with one.
    if (thread >= thread_end_ || thread > events_end_ - remaining_ + 1) {
      error_ = "it holds a thread that cannot have been";
      return;
    }
    context_.thread = static_cast<std::uint32_t>(thread);
  }
  event.thread = context_.thread;
  if (makes_object(event.kind)) event.object = context_.next_object++;
  if (refers_to_object(event.kind)) event.object = decode_object(tag, event.thread);
  if (refers_to_other(event.kind)) event.object = objects_.next();
  if (has_size(event.kind)) event.size = sizes_.next();
  if (event.kind == Kind::aligned) event.log2_alignment = alignments_.byte();
  context_.time_ns += static_cast<std::uint64_t>(unfold_sign(times_.next()));
  event.time_ns = context_.time_ns;
  error_ = find_error(event);
}

// Of one that was decoded.
const char* EventDecoder::find_error(const Event& event) const {
  if (tags_.failed() || threads_.failed() || objects_.failed() || sizes_.failed() ||
      times_.failed() || alignments_.failed()) {
    return "a column ends too early";
  }
  if (refers_to_object(event.kind) && event.object >= context_.next_object) {
    return "it holds an object before it was made";
  }
  if (event.kind == Kind::thread_begin && event.object >= thread_end_) {
    return "it holds a thread that cannot have been";
  }
  if (event.kind == Kind::fork && event.object >= max_images) {
    return "it holds an image that cannot have been";
  }
  if (event.log2_alignment > max_log2_alignment) return "it holds an impossible alignment";
  return nullptr;
}

void EventDecoder::check_end() {
  const bool is_used_up = tags_.is_used_up() && threads_.is_used_up() && objects_.is_used_up() &&
                          sizes_.is_used_up() && times_.is_used_up() && alignments_.is_used_up();
  if (!is_used_up) {
    error_ = "its columns hold more than its events";
  } else if (context_.next_object != objects_end_ || context_.time_ns != last_time_ns_) {
    error_ = "its events are not those that its header tells of";
  }
}

std::size_t EventDecoder::decode(std::span<Event> events) {
  std::size_t done = 0;
  for (; done < events.size() && remaining_ > 0; ++done) {
    decode_event(events[done]);
    if (error_ != nullptr) break;
    --remaining_;
    if (remaining_ == 0) {
      check_end();
      if (error_ != nullptr) break;
    }
  }
  if (error_ != nullptr) remaining_ = 0;
  return done;
}

}  // namespace ts::trace
