// The search for chunks; see chunk_list.h.
#include <algorithm>
#include <cstring>
#include <utility>

#include "trace/format/chunk_list.h"

namespace ts::trace {
namespace {

// How much is looked at at once, the more the longer nothing is found: a file full of parts is
// not read over and over, one without any in large steps.
constexpr std::size_t first_window_bytes = 4 << 10;
constexpr std::size_t last_window_bytes = 1 << 20;
constexpr std::size_t longest_part = std::max(chunk_header_bytes, footer_bytes);
// What the magics of chunks and of the footer begin with.
constexpr std::array<std::uint8_t, 2> part_magic{0xd5, 'T'};
static_assert(chunk_magic[0] == part_magic[0] && chunk_magic[1] == part_magic[1]);
static_assert(footer_magic[0] == part_magic[0] && footer_magic[1] == part_magic[1]);

bool is_part(ByteSpan bytes) {
  return decode_chunk_header(bytes).has_value() || decode_footer(bytes).has_value();
}

class Scan {
 public:
  Scan(const InputFile& file, std::uint64_t begin, Damages& damages)
      : file_{file}, damages_{damages}, at_{begin}, used_end_{begin} {}

  ChunkList run() &&;

 private:
  bool take_part();
  bool take_footer();
  void take_chunk(const ChunkHeader& header);
  std::uint64_t find_part(std::uint64_t from, std::uint64_t end);
  bool is_damaged(const Chunk& chunk);
  bool cut_at_next(Chunk& chunk);
  void cut(Chunk& chunk, std::uint64_t end);
  void tell_hole(std::uint64_t end);

  const InputFile& file_;
  Damages& damages_;
  ChunkList list_;
  std::uint64_t at_;        // where the next part should be
  std::uint64_t used_end_;  // the end of the last part; in order, as at_ is, but for a cut chunk's
  Bytes part_;
  Bytes window_;
  std::uint64_t read_in_vain_ = 0;  // bytes of payloads that were damaged
  bool is_last_unread_ = false;     // the payload of the last chunk
  bool is_at_end_ = false;
};

bool Scan::take_footer() {
  const auto footer = decode_footer(part_);
  if (!footer) return false;
  tell_hole(at_);
  list_.footer = footer;
  is_at_end_ = true;
  const std::uint64_t end = at_ + footer_bytes;
  if (end < file_.size()) {
    damages_.add(end, file_.size() - end, 0,
                 count_text(file_.size() - end, "byte") +
                     " after the trace's end are no part of it. Nothing is lost; cut them off.");
  }
  return true;
}

// Whether its payload is not what was written: bytes may be missing in it. Where a file is made of
// headers that all claim a lot, this would read it over and over; after a while it does not.
bool Scan::is_damaged(const Chunk& chunk) {
  is_last_unread_ = read_in_vain_ > 4 * file_.size();
  if (is_last_unread_ || read_payload(file_, chunk, window_) == nullptr) return false;
  read_in_vain_ += chunk.header.coded_bytes;
  return true;
}

// If another part begins within what a damaged chunk claims, bytes are missing in it, and it ends
// there. No intact payload holds a part: the checksums make that as good as impossible.
bool Scan::cut_at_next(Chunk& chunk) {
  const std::uint64_t found = find_part(chunk.payload_offset(), chunk.end());
  if (found == chunk.end()) return false;
  cut(chunk, found);
  at_ = used_end_ = found;
  return true;
}

void Scan::take_chunk(const ChunkHeader& header) {
  tell_hole(at_);
  if (header.type == ChunkType::index) list_.has_index = true;
  list_.chunks.push_back({.offset = at_, .header = header});
  Chunk& chunk = list_.chunks.back();
  used_end_ = std::min(chunk.end(), file_.size());
  at_ = chunk.end();
  if (chunk.end() > file_.size()) {
    cut(chunk, file_.size());
    at_ = chunk.payload_offset();  // of the next part, should the header claim too much
    is_last_unread_ = false;
  } else if (is_damaged(chunk)) {
    cut_at_next(chunk);
  }
}

// Whatever is at at_; false if that is no part of a trace.
bool Scan::take_part() {
  const std::uint64_t remaining = file_.size() - std::min(at_, file_.size());
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(remaining, longest_part));
  if (file_.read(at_, size, part_) != nullptr) return false;
  if (take_footer()) return true;
  const auto header = decode_chunk_header(part_);
  if (!header) return false;
  if (const char* const lie = find_lie(*header)) {
    tell_hole(at_);
    damages_.add(at_, chunk_header_bytes, 0,
                 std::string{"a chunk's header cannot be true: "} + lie +
                     ". It is left out; whatever wrote it has a defect.");
    used_end_ = at_ + chunk_header_bytes;
    at_ = find_part(at_ + 1, file_.size());
    is_last_unread_ = false;
    return true;
  }
  take_chunk(*header);
  return true;
}

// The first part that begins at `from` or after it; `end` if there is none before it.
std::uint64_t Scan::find_part(std::uint64_t from, std::uint64_t end) {
  std::size_t window_bytes = first_window_bytes;
  while (from < end) {
    // A part that begins before `end` may reach beyond it.
    const std::uint64_t remaining = std::min(file_.size(), end + longest_part - 1) - from;
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(remaining, window_bytes));
    if (file_.read(from, size, window_) != nullptr) break;
    const ByteSpan window{window_};
    for (std::size_t at = 0; at + part_magic.size() <= size; ++at) {
      const void* const found =
          memmem(window.data() + at, size - at, part_magic.data(), part_magic.size());
      if (found == nullptr) break;
      at = static_cast<std::size_t>(static_cast<const std::uint8_t*>(found) - window.data());
      if (from + at >= end) break;
      if (size - at < longest_part && size < remaining) break;  // the next window has all of it
      if (is_part(window.subspan(at))) return from + at;
    }
    if (size == remaining) break;
    from += size - (longest_part - 1);
    window_bytes = std::min(2 * window_bytes, last_window_bytes);
  }
  return end;
}

void Scan::cut(Chunk& chunk, std::uint64_t end) {
  chunk.is_cut = true;
  const bool is_of_events = chunk.header.type == ChunkType::events;
  damages_.add(chunk.offset, end - chunk.offset, is_of_events ? chunk.header.count : 0,
               "a chunk is cut off: " + contents_text(chunk.header) +
                   " cannot be read. Copy the file once more from where it was recorded.");
}

void Scan::tell_hole(std::uint64_t end) {
  if (used_end_ >= end) return;
  const std::string bytes = count_text(end - used_end_, "byte");
  damages_.add(used_end_, end - used_end_, 0,
               used_end_ == 0
                   ? "the file's header is damaged: a trace can only be read after " + bytes +
                         ". Copy the file once more from where it was recorded."
                   : bytes +
                         " belong to no chunk: what was there cannot be read. Copy the file "
                         "once more from where it was recorded.");
  used_end_ = end;
}

ChunkList Scan::run() && {
  while (!is_at_end_ && at_ < file_.size()) {
    if (list_.chunks.size() == max_chunks) {
      damages_.add(at_, file_.size() - at_, 0,
                   "more chunks than a trace can have: what follows is not read.");
      used_end_ = file_.size();
      break;
    }
    if (take_part()) continue;
    const bool is_cut = is_last_unread_ && cut_at_next(list_.chunks.back());
    is_last_unread_ = false;
    if (!is_cut) at_ = find_part(at_, file_.size());
  }
  if (!is_at_end_) tell_hole(file_.size());
  std::erase_if(list_.chunks,
                [](const Chunk& chunk) { return chunk.header.type == ChunkType::index; });
  return std::move(list_);
}

}  // namespace

ChunkList scan(const InputFile& file, std::uint64_t begin, Damages& damages) {
  return Scan{file, begin, damages}.run();
}

}  // namespace ts::trace
