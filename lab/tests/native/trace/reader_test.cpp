// What is no trace at all, and what a reader does with a good one.
#include "trace/format/reader.h"

#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include "samples.h"

namespace ts::trace::testing {
namespace {

std::string error_of(const std::string& path) {
  try {
    const Reader reader{path};
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string error_of_bytes(const std::string& bytes) {
  const MemoryFile file{{reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}};
  return error_of(file.path());
}

void expect_error(const std::string& error, std::initializer_list<const char*> parts) {
  for (const char* const part : parts) {
    EXPECT_NE(error.find(part), std::string::npos) << "'" << part << "' is not in: " << error;
  }
}

TEST(TraceReader, SaysWhatIsNoTrace) {
  expect_error(error_of_bytes(""), {"is empty", "record again"});
  expect_error(error_of_bytes("x"), {"is no trace", "tsmalloc record"});
  expect_error(error_of_bytes("#!/bin/sh\necho a script of some length\n"), {"is no trace"});
  expect_error(error_of_bytes(std::string(100'000, '\0')), {"is no trace"});
  expect_error(error_of_bytes("\x28\xb5\x2f\xfd and more"), {"compressed", "Unpack"});
  expect_error(error_of_bytes("\x89TST"), {"cut off", "record again"});
  expect_error(error_of("/nowhere/trace"), {"/nowhere/trace", "No such file"});
  expect_error(error_of("/"), {"directory"});
  expect_error(error_of("/dev/null"), {"no regular file"});
}

TEST(TraceReader, DoesNotWaitForAFifo) {
  const std::string path = ::testing::TempDir() + "trace-fifo-" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  expect_error(error_of(path), {"no regular file"});
  unlink(path.c_str());
}

TEST(TraceReader, SaysWhoseRightIsMissing) {
  const std::string path = ::testing::TempDir() + "trace-secret-" + std::to_string(getpid());
  Writer(path, true).finish();
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  // For root, rights are missing only when the thread's file-system identity is another user's.
  const auto self = static_cast<unsigned>(setfsuid(65'534));
  const std::string error = error_of(path);
  setfsuid(self);
  unlink(path.c_str());
  expect_error(error, {"Permission denied", "owner"});
}

TEST(TraceReader, RefusesANewerVersion) {
  Bytes bytes = make_sample(1, 1, 1, true).bytes;
  bytes[8] = 2;
  repair_checksums(bytes);
  const MemoryFile file{bytes};
  expect_error(error_of(file.path()), {"version 2", "version 1", "newer"});
}

TEST(TraceReader, ATraceWithoutImagesIsWhole) {
  const MemoryFile file;
  Writer(file.path(), true).finish();
  Reader reader{file.path()};
  reader.verify();
  EXPECT_TRUE(reader.is_whole());
  EXPECT_TRUE(reader.images().empty());
  EXPECT_EQ(reader.find_image(0), nullptr);
  EXPECT_THROW(reader.events(0), Error);
}

TEST(TraceReader, KnowsItsImages) {
  const Sample sample = make_sample(2, 3, 4, true);
  const MemoryFile file{sample.bytes};
  const Reader reader{file.path()};
  ASSERT_EQ(reader.images().size(), 2U);
  const Image& child = reader.images()[1];
  EXPECT_EQ(child.number, 1U);
  EXPECT_EQ(child.parent, 0U);
  EXPECT_EQ(child.birth, Image::Birth::fork);
  EXPECT_EQ(child.fork_event, 3U);
  EXPECT_EQ(child.first_object, 7U);
  EXPECT_EQ(child.begin_ns, ~0ULL);
  EXPECT_EQ(child.program, "second");
  EXPECT_EQ(child.allocator, "libtwo.so");
  EXPECT_EQ(child.end, Image::End::killed);
  EXPECT_EQ(child.end_ns, 77U);
  EXPECT_EQ(child.events, sample.images[1].events);
  EXPECT_EQ(child.objects, sample.images[1].objects);
  EXPECT_EQ(child.threads, sample.images[1].threads);
  EXPECT_EQ(reader.images()[0].parent, no_image);
  EXPECT_EQ(reader.chunks(), 6U);
  EXPECT_EQ(reader.file_bytes(), sample.bytes.size());
}

// A later version may add chunks that readers of this one can do without.
TEST(TraceReader, PassesOverChunksOfAnUnknownType) {
  const Sample sample = make_sample(4, 2, 3, false);
  ChunkHeader header;
  header.type = static_cast<ChunkType>(9);
  header.image = ~0U;
  header.coded_bytes = 5;
  header.plain_bytes = 5;
  Bytes chunk(chunk_header_bytes + 5, 'x');
  encode(header, chunk.data());
  for (const PlacedChunk& before : chunks_of(sample.bytes)) {
    Bytes bytes = sample.bytes;
    bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(before.offset), chunk.begin(),
                 chunk.end());
    repair_checksums(bytes);
    const MemoryFile file{bytes};
    Reader reader{file.path()};
    reader.verify();
    EXPECT_EQ(reader.damage().size(), 1U);  // that it has no end
    EXPECT_EQ(reader.images()[0].events, sample.events.at(0).size());
  }
}

TEST(TraceReader, AFileThatShrinksWhileItIsReadHasAGap) {
  const Sample sample = make_sample(5, 3, 4, true);
  MemoryFile file{sample.bytes};
  Reader reader{file.path()};
  const PlacedChunk second = chunks_of(sample.bytes)[4];
  ASSERT_EQ(second.header.first_event, 4U);
  file.set(ByteSpan{sample.bytes}.first(second.offset));
  Cursor cursor = reader.events(0);
  Event event;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(cursor.next(event));
  EXPECT_FALSE(cursor.next(event));
  ASSERT_NE(cursor.gap(), nullptr);
  EXPECT_EQ(cursor.gap()->first_event, 4U);
  EXPECT_EQ(cursor.gap()->events, 8U);
  reader.verify();
  EXPECT_FALSE(reader.is_whole());
}

TEST(TraceReader, CursorsDoNotDisturbEachOther) {
  const Sample sample = make_sample(6, 5, 50, true);
  const MemoryFile file{sample.bytes};
  const Reader reader{file.path()};
  Cursor one = reader.events(0);
  Cursor other = reader.events(0, 100);
  Event event;
  for (std::size_t i = 0; i < 150; ++i) {
    ASSERT_TRUE(one.next(event));
    ASSERT_EQ(event, sample.events.at(0)[i]);
    ASSERT_TRUE(other.next(event));
    ASSERT_EQ(event, sample.events.at(0)[100 + i]);
  }
}

}  // namespace
}  // namespace ts::trace::testing
