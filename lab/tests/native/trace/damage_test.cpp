// A small trace, damaged in every place: what is intact is read, before the damage and after it,
// and what is not is told.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "samples.h"
#include "trace/format/reader.h"

namespace ts::trace::testing {
namespace {

using Numbers = std::vector<std::uint64_t>;

// The numbers of the events that can be read, all of which must be the true ones; and what the gaps
// tell must be what is missing.
Numbers readable(const Reader& reader, std::uint32_t image, const Events& truth) {
  Numbers numbers;
  std::uint64_t expected = 0;
  Cursor cursor = reader.events(image);
  const auto check_gap = [&](std::uint64_t next) {
    if (const Gap* const gap = cursor.gap()) {
      EXPECT_EQ(gap->first_event, expected);
      EXPECT_EQ(gap->first_event + gap->events, next);
      EXPECT_FALSE(gap->text.empty());
      expected = next;
    }
    EXPECT_EQ(next, expected) << "a gap that nobody told";
  };
  Event event;
  while (cursor.next(event)) {
    const std::uint64_t number = cursor.number();
    check_gap(number);
    EXPECT_LT(number, truth.size());
    if (number >= truth.size() || event != truth[number]) {
      ADD_FAILURE() << "event " << number << " is not what was written";
      break;
    }
    numbers.push_back(number);
    expected = number + 1;
  }
  EXPECT_FALSE(cursor.next(event));
  check_gap(cursor.gap() != nullptr ? cursor.gap()->first_event + cursor.gap()->events : expected);
  return numbers;
}

Numbers all_numbers(const Events& events) {
  Numbers numbers(events.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::uint64_t lost_events(const Reader& reader) {
  std::uint64_t lost = 0;
  for (const Damage& damage : reader.damage()) lost += damage.events;
  return lost;
}

void expect_told(const Reader& reader) {
  ASSERT_FALSE(reader.is_whole());
  for (const Damage& damage : reader.damage()) {
    EXPECT_FALSE(damage.text.empty());
    EXPECT_LE(damage.offset + damage.bytes, reader.file_bytes());
  }
}

// Which of a sample's chunks of events are lost is known, or which may be lost: where bytes are taken
// out or put in, the others may happen to make a chunk whole. Everything else must be readable.
enum class Lost : std::uint8_t { all, some };
template <typename IsLost>
void expect_only_lost(Reader& reader, const Sample& sample, IsLost is_lost, Lost lost = Lost::all) {
  reader.verify();
  expect_told(reader);
  for (const auto& [image, events] : sample.events) {
    Numbers expected = all_numbers(events);
    for (const PlacedChunk& chunk : chunks_of(sample.bytes)) {
      if (chunk.header.type != ChunkType::events || chunk.header.image != image) continue;
      if (!is_lost(chunk)) continue;
      std::erase_if(expected, [&](std::uint64_t number) {
        return number >= chunk.header.first_event && number < chunk.header.events_end();
      });
    }
    if (expected.empty() && reader.find_image(image) == nullptr) continue;
    const Numbers numbers = readable(reader, image, events);
    if (lost == Lost::all) {
      ASSERT_EQ(numbers, expected) << "image " << image;
    } else {
      ASSERT_TRUE(std::includes(numbers.begin(), numbers.end(), expected.begin(), expected.end()))
          << "image " << image << ": " << numbers.size() << " of " << expected.size();
    }
  }
}

constexpr std::size_t small_chunks = 3;
constexpr std::size_t small_events = 5;

// Each flipped bit loses the chunk that it lies in, unless it is in the first `spared` bytes of it.
void expect_flips_lose_their_chunk(const Sample& sample, std::size_t spared) {
  MemoryFile file;
  for (std::size_t bit = 0; bit < 8 * sample.bytes.size(); ++bit) {
    SCOPED_TRACE("bit " + std::to_string(bit % 8) + " of byte " + std::to_string(bit / 8));
    Bytes bytes = sample.bytes;
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1 << (bit % 8));
    file.set(bytes);
    Reader reader{file.path()};
    std::uint64_t lost = 0;
    expect_only_lost(reader, sample, [&](const PlacedChunk& chunk) {
      const bool is_lost = bit / 8 >= chunk.offset + spared && bit / 8 < chunk.end();
      if (is_lost) lost = chunk.header.count;
      return is_lost;
    });
    EXPECT_EQ(lost_events(reader), lost);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(TraceDamage, EachFlippedBitOfAWholeTrace) {
  // The index has copies of the headers, so only what lies in payloads can be lost.
  expect_flips_lose_their_chunk(make_sample(1, small_chunks, small_events, true),
                                chunk_header_bytes);
}

TEST(TraceDamage, EachFlippedBitOfATraceWithoutIndex) {
  expect_flips_lose_their_chunk(make_sample(2, small_chunks, small_events, false), 0);
}

TEST(TraceDamage, CutAtEachByte) {
  const Sample sample = make_sample(3, small_chunks, small_events, true);
  MemoryFile file;
  for (std::size_t size = 0; size < sample.bytes.size(); ++size) {
    SCOPED_TRACE("cut at " + std::to_string(size));
    file.set(ByteSpan{sample.bytes}.first(size));
    if (size < file_header_bytes) {
      EXPECT_THROW(Reader{file.path()}, Error);
      continue;
    }
    Reader reader{file.path()};
    for (const auto& [number, events] : sample.events) {
      const Image* const image = reader.find_image(number);
      Numbers expected;
      for (const PlacedChunk& chunk : chunks_of(sample.bytes)) {
        const bool is_there = chunk.header.type == ChunkType::events &&
                              chunk.header.image == number && chunk.end() <= size;
        for (std::uint64_t i = 0; is_there && i < chunk.header.count; ++i) {
          expected.push_back(chunk.header.first_event + i);
        }
      }
      ASSERT_TRUE(image != nullptr || expected.empty());
      if (image != nullptr) {
        ASSERT_EQ(readable(reader, number, events), expected);
      }
    }
    reader.verify();
    expect_told(reader);
    if (HasFailure()) return;
  }
}

bool overlaps(const PlacedChunk& chunk, std::size_t begin, std::size_t end) {
  return chunk.offset < end && begin < chunk.end();
}

TEST(TraceDamage, MissingBytesAnywhere) {
  const Sample sample = make_sample(4, small_chunks, small_events, true);
  MemoryFile file;
  std::set<std::size_t> sizes{1, 7, 80, 300};
  // As many as make the chunk after the next one begin where the next one should.
  for (const PlacedChunk& chunk : chunks_of(sample.bytes)) sizes.insert(chunk.end() - chunk.offset);
  for (const std::size_t size : sizes) {
    for (std::size_t begin = 0; begin + size <= sample.bytes.size(); begin += 3) {
      SCOPED_TRACE(std::to_string(size) + " bytes missing at " + std::to_string(begin));
      Bytes bytes = sample.bytes;
      const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(begin);
      bytes.erase(first, first + static_cast<std::ptrdiff_t>(size));
      file.set(bytes);
      Reader reader{file.path()};
      expect_only_lost(
          reader, sample,
          [&](const PlacedChunk& chunk) { return overlaps(chunk, begin, begin + size); },
          Lost::some);
      if (HasFailure()) return;
    }
  }
}

TEST(TraceDamage, ForeignBytesAnywhere) {
  const Sample sample = make_sample(5, small_chunks, small_events, true);
  MemoryFile file;
  for (const std::size_t size : {1U, 7U, 80U, 300U}) {
    for (std::size_t at = 0; at <= sample.bytes.size(); at += 3) {
      SCOPED_TRACE(std::to_string(size) + " bytes more at " + std::to_string(at));
      Bytes bytes = sample.bytes;
      bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), size, 0xd5);
      file.set(bytes);
      Reader reader{file.path()};
      expect_only_lost(
          reader, sample,
          [&](const PlacedChunk& chunk) { return chunk.offset < at && at < chunk.end(); },
          Lost::some);
      if (HasFailure()) return;
    }
  }
}

TEST(TraceDamage, ZeroedSectors) {
  const Sample sample = make_sample(6, 40, 20, true);
  constexpr std::size_t sector = 512;
  MemoryFile file;
  for (std::size_t begin = 0; begin < sample.bytes.size(); begin += sector) {
    SCOPED_TRACE("zeros from " + std::to_string(begin));
    const std::size_t end = std::min(begin + sector, sample.bytes.size());
    Bytes bytes = sample.bytes;
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(begin),
              bytes.begin() + static_cast<std::ptrdiff_t>(end), 0);
    file.set(bytes);
    Reader reader{file.path()};
    // With its index, a chunk outlives the loss of its header.
    const PlacedChunk index = chunks_of(sample.bytes).back();
    const bool has_index = end <= index.offset;
    expect_only_lost(reader, sample, [&](const PlacedChunk& chunk) {
      return overlaps(chunk, begin, end) && (!has_index || end > chunk.offset + chunk_header_bytes);
    });
    if (HasFailure()) return;
  }
}

TEST(TraceDamage, AChunkThatIsThereTwice) {
  const Sample sample = make_sample(7, small_chunks, small_events, true);
  MemoryFile file;
  for (const PlacedChunk& chunk : chunks_of(sample.bytes)) {
    if (chunk.header.type == ChunkType::index) continue;
    SCOPED_TRACE("the chunk at " + std::to_string(chunk.offset));
    Bytes bytes = sample.bytes;
    const auto begin = sample.bytes.begin() + static_cast<std::ptrdiff_t>(chunk.offset);
    const auto end = sample.bytes.begin() + static_cast<std::ptrdiff_t>(chunk.end());
    bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(chunk.end()), begin, end);
    file.set(bytes);
    Reader reader{file.path()};
    expect_only_lost(reader, sample, [](const PlacedChunk&) { return false; });
    EXPECT_EQ(lost_events(reader), 0U);
  }
}

TEST(TraceDamage, OneTraceAfterAnother) {
  const Sample sample = make_sample(8, small_chunks, small_events, true);
  Bytes bytes = sample.bytes;
  bytes.insert(bytes.end(), sample.bytes.begin(), sample.bytes.end());
  MemoryFile file{bytes};
  {
    // The second one's index does not fit; what comes after the first one's end is told.
    Reader reader{file.path()};
    expect_only_lost(reader, sample, [](const PlacedChunk&) { return false; });
    EXPECT_EQ(lost_events(reader), 0U);
  }
}

// The chunk that is lost is the last of its image: how many there were is known from the image's
// end.
TEST(TraceDamage, LostEventsAtTheEndOfAnImageAreCounted) {
  const Sample sample = make_sample(9, small_chunks, small_events, true);
  for (const bool has_footer : {true, false}) {
    Bytes bytes = sample.bytes;
    PlacedChunk last{};
    for (const PlacedChunk& chunk : chunks_of(bytes)) {
      if (chunk.header.type == ChunkType::events) last = chunk;
    }
    bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(last.offset),
                bytes.begin() + static_cast<std::ptrdiff_t>(last.end()));
    if (!has_footer) bytes.resize(bytes.size() - footer_bytes);
    MemoryFile file{bytes};
    const Reader reader{file.path()};
    expect_told(reader);
    EXPECT_EQ(lost_events(reader), last.header.count);
    EXPECT_EQ(reader.find_image(last.header.image)->events, last.header.events_end());
    Cursor cursor = reader.events(last.header.image, last.header.first_event + 1);
    Event event;
    EXPECT_FALSE(cursor.next(event));
    ASSERT_NE(cursor.gap(), nullptr);
    EXPECT_EQ(cursor.gap()->first_event, last.header.first_event + 1);
    EXPECT_EQ(cursor.gap()->events, last.header.count - 1);
  }
}

TEST(TraceDamage, AnImageWhoseBeginIsLostCanBeRead) {
  const Sample sample = make_sample(10, small_chunks, small_events, true);
  const PlacedChunk begin = chunks_of(sample.bytes)[1];
  ASSERT_EQ(begin.header.type, ChunkType::image_begin);
  Bytes bytes = sample.bytes;
  bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(begin.offset),
              bytes.begin() + static_cast<std::ptrdiff_t>(begin.end()));
  MemoryFile file{bytes};
  Reader reader{file.path()};
  const Image* const image = reader.find_image(1);
  ASSERT_NE(image, nullptr);
  EXPECT_EQ(image->birth, Image::Birth::unknown);
  EXPECT_EQ(image->first_object, sample.images[1].first_object);
  EXPECT_EQ(image->events, sample.images[1].events);
  EXPECT_EQ(image->end, Image::End::killed);
  expect_only_lost(reader, sample, [](const PlacedChunk&) { return false; });
}

TEST(TraceDamage, AnImageThatIsLostWhollyIsNamed) {
  const Sample sample = make_sample(11, small_chunks, small_events, true);
  Bytes bytes{sample.bytes.begin(), sample.bytes.begin() + file_header_bytes};
  for (const PlacedChunk& chunk : chunks_of(sample.bytes)) {
    if (chunk.header.image == 0 && chunk.header.type != ChunkType::index) continue;
    bytes.insert(bytes.end(), sample.bytes.begin() + static_cast<std::ptrdiff_t>(chunk.offset),
                 sample.bytes.begin() + static_cast<std::ptrdiff_t>(chunk.end()));
  }
  bytes.insert(bytes.end(), sample.bytes.end() - footer_bytes, sample.bytes.end());
  MemoryFile file{bytes};
  const Reader reader{file.path()};
  EXPECT_EQ(lost_events(reader), sample.events.at(0).size());
  const bool is_named =
      std::any_of(reader.damage().begin(), reader.damage().end(), [](const Damage& damage) {
        return damage.text.find("image 0 is missing wholly") != std::string::npos;
      });
  EXPECT_TRUE(is_named);
  ASSERT_EQ(reader.images().size(), 1U);
  EXPECT_EQ(readable(reader, 1, sample.events.at(1)), all_numbers(sample.events.at(1)));
  EXPECT_THROW(reader.events(0), Error);
}

TEST(TraceDamage, ManyDamagesAreSummedUp) {
  const Sample sample = make_sample(12, 1'500, 2, true);
  Bytes bytes = sample.bytes;
  for (const PlacedChunk& chunk : chunks_of(sample.bytes)) {
    if (chunk.header.type == ChunkType::events) bytes[chunk.end() - 1] ^= 1;
  }
  MemoryFile file{bytes};
  Reader reader{file.path()};
  reader.verify();
  EXPECT_EQ(reader.damage().size(), Reader::max_damages);
  EXPECT_EQ(lost_events(reader), 2 * 1'500U * 2);
  EXPECT_NE(reader.damage().back().text.find("and 2001 more places"), std::string::npos)
      << reader.damage().back().text;
}

}  // namespace
}  // namespace ts::trace::testing
