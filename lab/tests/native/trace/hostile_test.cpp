// Files whose checksums are right and whose contents lie, as a defective or malicious program would
// write them: no crash, no more memory or time than the file's size allows, and the rest is read.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "samples.h"
#include "trace/format/columns.h"
#include "trace/format/compression.h"
#include "trace/format/reader.h"

namespace ts::trace::testing {
namespace {

// Reads all that can be read; returns the number of events.
std::uint64_t exhaust(Reader& reader) {
  std::uint64_t events = 0;
  for (const Image& image : reader.images()) {
    std::uint64_t expected = 0;
    Cursor cursor = reader.events(image.number);
    for (Event event; cursor.next(event); ++events) {
      if (cursor.gap() != nullptr) expected = cursor.gap()->first_event + cursor.gap()->events;
      EXPECT_EQ(cursor.number(), expected);
      EXPECT_LT(event.kind, Kind::count);
      EXPECT_LE(event.thread, cursor.number() + 1);  // the first needs no event
      EXPECT_LE(event.log2_alignment, max_log2_alignment);
      EXPECT_LE(event.object, max_events);
      ++expected;
    }
    reader.events(image.number, image.events / 2);
  }
  reader.verify();
  return events;
}

// Whether a file is refused, or read without harm.
void expect_harmless(const std::string& path) {
  try {
    Reader reader{path};
    exhaust(reader);
  } catch (const Error& error) {
    EXPECT_NE(std::string{error.what()}, "");
  }
}

constexpr std::uint64_t lies[] = {
    0,           1,           2,           0x7f,        0x80,       0xff,
    65'535,      65'536,      65'537,      1 << 20,     4 << 20,    (4 << 20) + 1,
    0x7fff'ffff, 0x8000'0000, 0xffff'fffe, 0xffff'ffff, 1ULL << 48, (1ULL << 48) + 1,
    ~0ULL >> 1,  ~0ULL - 1,   ~0ULL};

struct Field {
  std::size_t offset;
  std::size_t bytes;
};

void store_field(Bytes& bytes, std::size_t part, Field field, std::uint64_t value) {
  for (std::size_t i = 0; i < field.bytes; ++i) {
    bytes[part + field.offset + i] = static_cast<std::uint8_t>(value >> (8 * i));
  }
}

TEST(HostileTrace, EachFieldOfEachChunkHeaderLies) {
  constexpr Field fields[] = {{4, 1},  {5, 3},  {8, 4},  {12, 4}, {16, 4}, {20, 4}, {24, 8},
                              {32, 8}, {40, 8}, {48, 8}, {56, 4}, {60, 4}, {68, 8}};
  for (const bool is_finished : {true, false}) {
    const Sample sample = make_sample(20, 3, 5, is_finished);
    MemoryFile file;
    for (const PlacedChunk& chunk : chunks_of(sample.bytes)) {
      for (const Field field : fields) {
        for (const std::uint64_t lie : lies) {
          SCOPED_TRACE("chunk " + std::to_string(chunk.offset) + ", field " +
                       std::to_string(field.offset) + ": " + std::to_string(lie));
          Bytes bytes = sample.bytes;
          store_field(bytes, chunk.offset, field, lie);
          repair_checksums(bytes);
          file.set(bytes);
          expect_harmless(file.path());
          rebuild_index(bytes);  // one that tells the same lie
          file.set(bytes);
          expect_harmless(file.path());
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(HostileTrace, EachFieldOfTheFooterLies) {
  const Sample sample = make_sample(21, 3, 5, true);
  MemoryFile file;
  for (const Field field : {Field{8, 8}, Field{16, 8}, Field{24, 4}, Field{28, 4}, Field{32, 4}}) {
    for (const std::uint64_t lie : lies) {
      Bytes bytes = sample.bytes;
      store_field(bytes, bytes.size() - footer_bytes, field, lie);
      repair_checksums(bytes);
      file.set(bytes);
      Reader reader{file.path()};
      EXPECT_EQ(exhaust(reader), 30U);
      EXPECT_EQ(reader.is_whole(), bytes == sample.bytes);
    }
  }
}

// What lies is left out, and what is around it is read.
TEST(HostileTrace, ChunksAroundALiarAreRead) {
  const Sample sample = make_sample(22, 3, 5, false);
  const std::vector<PlacedChunk> chunks = chunks_of(sample.bytes);
  const PlacedChunk liar = chunks[4];
  ASSERT_EQ(liar.header.first_event, 5U);
  MemoryFile file;
  for (const Field field : {Field{12, 4}, Field{16, 4}, Field{20, 4}, Field{24, 8}, Field{32, 8},
                            Field{56, 4}, Field{60, 4}}) {
    for (const std::uint64_t lie : {~0ULL, ~0ULL >> 1, 1ULL << 31}) {
      if (field.offset == 24 && lie < max_events) continue;  // a gap, which could be true
      SCOPED_TRACE("field " + std::to_string(field.offset) + ": " + std::to_string(lie));
      Bytes bytes = sample.bytes;
      store_field(bytes, liar.offset, field, lie);
      repair_checksums(bytes);
      file.set(bytes);
      Reader reader{file.path()};
      EXPECT_EQ(exhaust(reader), 25U);
      std::uint64_t lost = 0;
      for (const Damage& damage : reader.damage()) lost += damage.events;
      EXPECT_EQ(lost, 5U);
    }
  }
}

// Every byte of a payload, with its checksum made right: columns that lie.
TEST(HostileTrace, EachByteOfAPayloadLies) {
  const Sample sample = make_sample(23, 2, 12, false);
  MemoryFile file;
  for (const PlacedChunk& chunk : chunks_of(sample.bytes)) {
    for (std::size_t at = chunk.offset + chunk_header_bytes; at < chunk.end(); ++at) {
      for (const int change : {0x01, 0x10, 0x7f, 0x80, 0xff}) {
        Bytes bytes = sample.bytes;
        bytes[at] = static_cast<std::uint8_t>(bytes[at] ^ change);
        repair_checksums(bytes);
        file.set(bytes);
        expect_harmless(file.path());
        rebuild_index(bytes);
        file.set(bytes);
        expect_harmless(file.path());
        if (HasFailure()) return;
      }
    }
  }
}

TEST(HostileTrace, RandomLies) {
  std::mt19937_64 random{24};
  const Sample samples[] = {make_sample(24, 4, 9, true), make_sample(25, 2, 300, true),
                            make_sample(26, 3, 4, false)};
  MemoryFile file;
  for (int round = 0; round < 6'000 / TS_TEST_SLOWNESS; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    Bytes bytes = samples[random() % 3].bytes;
    for (std::uint64_t i = 0; i <= random() % 4; ++i) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<std::uint8_t>(random());
          break;
        case 1:
          bytes.resize(std::max<std::size_t>(at, 1));
          break;
        case 2:
          bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), random() % 40,
                       static_cast<std::uint8_t>(random()));
          break;
        default: {
          const std::size_t size = std::min<std::size_t>(random() % 100, bytes.size() - at);
          const Bytes part{bytes.begin() + static_cast<std::ptrdiff_t>(at),
                           bytes.begin() + static_cast<std::ptrdiff_t>(at + size)};
          const auto to = static_cast<std::ptrdiff_t>(random() % bytes.size());
          bytes.insert(bytes.begin() + to, part.begin(), part.end());
        }
      }
    }
    repair_checksums(bytes);
    if (random() % 3 == 0) rebuild_index(bytes);
    file.set(bytes);
    expect_harmless(file.path());
    if (HasFailure()) return;
  }
}

void append_chunk(Bytes& file, ChunkHeader header, const Bytes& payload) {
  header.coded_bytes = static_cast<std::uint32_t>(payload.size());
  const std::size_t at = file.size();
  file.resize(at + chunk_header_bytes);
  encode(header, &file[at]);
  file.insert(file.end(), payload.begin(), payload.end());
}

// The payload of a chunk of events with one column, which unpacks to as much as the format allows.
Bytes bomb(std::size_t plain_bytes, std::size_t claimed_bytes) {
  Bytes packed;
  Packer packer;
  packer.append(packed, Bytes(plain_bytes, 0));
  Bytes payload;
  put_number(payload, claimed_bytes);
  put_number(payload, packed.size());
  for (std::size_t i = 1; i < column_count; ++i) {
    put_number(payload, 0);
    put_number(payload, 0);
  }
  payload.insert(payload.end(), packed.begin(), packed.end());
  return payload;
}

// What this process had in memory at most since the last reset.
std::uint64_t resident_peak_kib() {
  std::ifstream status{"/proc/self/status"};
  for (std::string word; status >> word;) {
    std::uint64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib;
  }
  return 0;
}

bool reset_resident_peak() {
  std::ofstream references{"/proc/self/clear_refs"};
  references << 5;
  return static_cast<bool>(references.flush());
}

TEST(HostileTrace, ABombDoesNotGoOff) {
  const auto header = encode(FileHeader{});
  ChunkHeader chunk;
  chunk.count = max_chunk_events;
  chunk.threads = 1;
  // One that says how much it unpacks to, and is within what a chunk may have; one that says
  // more; one that unpacks to more than it says.
  struct Case {
    std::uint32_t plain;
    std::uint32_t claimed;
  };
  for (const Case& bomb_case :
       {Case{max_chunk_events * max_event_bytes, max_chunk_events * max_event_bytes},
        Case{64U << 20, 64U << 20}, Case{64U << 20, 100'000}}) {
    Bytes bytes{header.begin(), header.end()};
    const Bytes payload = bomb(bomb_case.plain, bomb_case.claimed);
    for (std::uint32_t i = 0; i < 50; ++i) {
      chunk.first_event = std::uint64_t{i} * max_chunk_events;
      chunk.plain_bytes = bomb_case.claimed;
      append_chunk(bytes, chunk, payload);
    }
    repair_checksums(bytes);
    const MemoryFile file{bytes};
    const bool can_measure = TS_TEST_SLOWNESS == 1 && reset_resident_peak();
    const std::uint64_t before = resident_peak_kib();
    Reader reader{file.path()};
    EXPECT_EQ(exhaust(reader), 0U);
    EXPECT_FALSE(reader.is_whole());
    if (can_measure) {
      EXPECT_LT(resident_peak_kib() - before, 32U << 10);
    }
  }
}

// Headers that all claim as much as they can, one after the other: looked at in no more than
// linear time.
TEST(HostileTrace, AFileOfHeaders) {
  const auto begin = encode(FileHeader{});
  Bytes bytes{begin.begin(), begin.end()};
  ChunkHeader header;
  header.count = max_chunk_events;
  header.threads = 1;
  header.plain_bytes = max_chunk_events * max_event_bytes;
  header.coded_bytes = header.plain_bytes - 1;
  constexpr std::uint64_t headers = 100'000;
  for (std::uint64_t i = 0; i < headers; ++i) {
    header.first_event = i * max_chunk_events;
    bytes.resize(bytes.size() + chunk_header_bytes);
    encode(header, &bytes[bytes.size() - chunk_header_bytes]);
  }
  const MemoryFile file{bytes};
  Reader reader{file.path()};
  EXPECT_EQ(exhaust(reader), 0U);
  EXPECT_EQ(reader.damage().size(), Reader::max_damages);
  EXPECT_EQ(reader.images().at(0).events, headers * max_chunk_events);
}

// As dense as a file can be: magics without end.
TEST(HostileTrace, AFileOfMagics) {
  Bytes bytes(24, 0);
  while (bytes.size() < 4'000'000)
    bytes.insert(bytes.end(), chunk_magic.begin(), chunk_magic.end());
  const MemoryFile file{bytes};
  EXPECT_THROW(Reader{file.path()}, Error);
}

// A chunk within another's payload is no chunk, as long as the outer one is followed by something.
TEST(HostileTrace, AChunkInAChunk) {
  const auto begin = encode(FileHeader{});
  Bytes bytes{begin.begin(), begin.end()};
  Bytes inner(chunk_header_bytes, 0);
  ChunkHeader header;
  header.count = 5;
  header.threads = 1;
  header.payload_crc = 0;  // of nothing
  encode(header, inner.data());
  ChunkHeader outer;
  outer.type = static_cast<ChunkType>(77);
  append_chunk(bytes, outer, inner);
  const Sample sample = make_sample(27, 1, 4, true);
  bytes.insert(bytes.end(), sample.bytes.begin() + file_header_bytes, sample.bytes.end());
  repair_checksums(bytes);
  const MemoryFile file{bytes};
  Reader reader{file.path()};
  EXPECT_EQ(exhaust(reader), 8U);
}

}  // namespace
}  // namespace ts::trace::testing
