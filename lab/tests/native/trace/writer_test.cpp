// What the writer refuses, and what is left when it is stopped.
#include "trace/format/writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "samples.h"
#include "trace/format/reader.h"

namespace ts::trace::testing {
namespace {

// What `act` throws; empty if nothing.
template <typename Act>
std::string error_of(Act act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class TraceWriter : public ::testing::Test {
 protected:
  TraceWriter() {
    const std::string folder = ::testing::TempDir() + "trace-XXXXXX";
    folder_ = folder;
    if (mkdtemp(folder_.data()) == nullptr) throw std::runtime_error{"no temporary folder"};
  }
  ~TraceWriter() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

TEST_F(TraceWriter, OverwritesOnlyWhenAsked) {
  const std::string file = path("trace");
  std::ofstream{file} << "precious";
  const std::string error = error_of([&] { Writer(file, false); });
  EXPECT_NE(error.find(file), std::string::npos);
  EXPECT_NE(error.find("-f"), std::string::npos) << error;
  EXPECT_EQ(std::filesystem::file_size(file), 8U);
  Writer(file, true).finish();
  EXPECT_TRUE(Reader{file}.is_whole());
}

TEST_F(TraceWriter, SaysWhatCannotBeWritten) {
  EXPECT_NE(error_of([&] { Writer(path("none/trace"), false); }).find("No such file"),
            std::string::npos);
  EXPECT_NE(error_of([&] { Writer(path(""), true); }).find("directory"), std::string::npos);
  mkfifo(path("fifo").c_str(), 0600);
  EXPECT_NE(error_of([&] { Writer(path("fifo"), true); }), "");
}

TEST_F(TraceWriter, AFullDiskIsAnErrorEachTime) {
  const auto full = [] { Writer("/dev/full", true); };
  EXPECT_NE(error_of(full).find("No space left"), std::string::npos);
}

// The disk fills up in the middle of a chunk: the file ends with the chunk before.
TEST_F(TraceWriter, AFileThatMayNotGrowEndsWithAWholeChunk) {
  const std::string file = path("trace");
  RandomEvents source{1, 0};
  Events written;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  std::string error;
  {
    Writer writer = Writer(file, false);
    writer.begin_image({});
    for (int i = 0; i < 1'000; ++i) {
      written.push_back(source.next());
      writer.add(0, written.back());
    }
    writer.flush();
    const rlimit limit{.rlim_cur = writer.bytes_written() + 100, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int i = 0; i < 1'000; ++i) writer.add(0, source.next());
    error = error_of([&] { writer.flush(); });
    EXPECT_NE(error_of([&] { writer.finish(); }), "");
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(error.find("File too large"), std::string::npos) << error;
  const Reader reader{file};
  ASSERT_EQ(reader.damage().size(), 1U);
  EXPECT_EQ(reader.damage().front().offset, reader.file_bytes());
  ASSERT_EQ(reader.images().size(), 1U);
  EXPECT_EQ(reader.images()[0].events, written.size());
}

TEST_F(TraceWriter, RefusesWhatAReaderWouldCallDamage) {
  struct Case {
    Event event;  // after one that allocates object 0
    bool is_good;
  };
  const Case cases[] = {
      {{.kind = Kind::malloc, .object = 1, .size = 8}, true},
      {{.kind = Kind::malloc, .object = 0, .size = 8}, false},  // once more
      {{.kind = Kind::malloc, .object = 2, .size = 8}, false},
      {{.kind = Kind::free}, true},
      {{.kind = Kind::free, .object = 1}, false},  // that is still to come
      {{.kind = Kind::free, .size = 1}, false},
      {{.kind = Kind::free, .log2_alignment = 4}, false},
      {{.kind = Kind::free, .thread = 1}, true},
      {{.kind = Kind::free, .thread = 2}, false},
      {{.kind = Kind::thread_begin, .thread = 1, .object = 1}, true},
      {{.kind = Kind::thread_begin, .thread = 1, .object = 2}, false},
      {{.kind = Kind::fork, .object = max_images}, false},
      {{.kind = Kind::count, .object = max_images}, false},
      {{.kind = Kind::refused, .object = 1, .size = 9}, false},
      {{.kind = Kind::aligned, .log2_alignment = 64, .object = 1, .size = 9}, false},
  };
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    MemoryFile file;
    Writer writer = Writer(file.path(), true);
    writer.begin_image({});
    writer.add(0, {.kind = Kind::malloc, .size = 8});
    EXPECT_EQ(error_of([&] { writer.add(0, cases[i].event); }).empty(), cases[i].is_good) << i;
  }
}

TEST_F(TraceWriter, AnImageHasABeginAndOneEnd) {
  MemoryFile file;
  Writer writer = Writer(file.path(), true);
  EXPECT_NE(error_of([&] { writer.add(0, {}); }), "");
  Image orphan;
  orphan.parent = 0;
  EXPECT_NE(error_of([&] { writer.begin_image(orphan); }), "");
  writer.begin_image({});
  writer.add(0, {});
  EXPECT_EQ(writer.events(0), 1U);
  writer.end_image(0, Image::End::exited, 5);
  EXPECT_NE(error_of([&] { writer.end_image(0, Image::End::exited, 5); }), "");
  EXPECT_NE(error_of([&] { writer.add(0, {}); }), "");
}

// The recorder is killed: all that was flushed is there, and how it went on is not known.
TEST_F(TraceWriter, AKilledRecorderLeavesWhatItFlushed) {
  MemoryFile file;
  const pid_t child = fork();
  if (child == 0) {
    Writer writer = Writer(file.path(), true);
    writer.begin_image({});
    RandomEvents source{9, 0};
    for (int i = 0; i < 500; ++i) writer.add(0, source.next());
    writer.flush();
    for (int i = 0; i < 500; ++i) writer.add(0, source.next());
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  Reader reader{file.path()};
  reader.verify();
  ASSERT_EQ(reader.damage().size(), 1U);
  EXPECT_NE(reader.damage()[0].text.find("killed"), std::string::npos);
  RandomEvents source{9, 0};
  Cursor cursor = reader.events(0);
  Event event;
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(cursor.next(event));
    ASSERT_EQ(event, source.next());
  }
  EXPECT_FALSE(cursor.next(event));
  ASSERT_NE(cursor.gap(), nullptr);
  EXPECT_EQ(cursor.gap()->first_event, 500U);
  EXPECT_EQ(cursor.gap()->events, 0U);
}

TEST_F(TraceWriter, AWriterThatIsDroppedWritesWhatItHolds) {
  MemoryFile file;
  {
    Writer writer = Writer(file.path(), true);
    writer.begin_image({});
    writer.add(0, {});
  }
  const Reader reader{file.path()};
  EXPECT_EQ(reader.images().at(0).events, 1U);
  EXPECT_FALSE(reader.is_whole());
}

// Many images at once, none of which fills a chunk: the fullest are written when there are too
// many.
TEST_F(TraceWriter, UnwrittenEventsAreBounded) {
  MemoryFile file;
  Writer writer = Writer(file.path(), true);
  constexpr std::uint32_t images = 100;
  constexpr std::uint64_t events = 50'000;
  static_assert(images * events > Writer::max_buffered_events + events);
  for (std::uint32_t i = 0; i < images; ++i) writer.begin_image({});
  std::uint64_t bytes = writer.bytes_written();
  std::uint64_t unwritten = 0;
  std::uint64_t most_unwritten = 0;
  Event event;
  for (; event.object < events; ++event.object) {
    for (std::uint32_t image = 0; image < images; ++image) {
      writer.add(image, event);
      most_unwritten = std::max(most_unwritten, ++unwritten);
      if (writer.bytes_written() == bytes) continue;
      for (const PlacedChunk& chunk : chunks_of(file.bytes(bytes), 0))
        unwritten -= chunk.header.count;
      bytes = writer.bytes_written();
    }
  }
  EXPECT_LE(most_unwritten, Writer::max_buffered_events);
  EXPECT_LT(unwritten, images * events);
  writer.finish();
  EXPECT_TRUE(Reader{file.path()}.is_whole());
}

// The first thread's first act may be another one's birth, or its last.
TEST_F(TraceWriter, ThreadsMayActBeforeTheFirst) {
  MemoryFile file;
  Writer writer = Writer(file.path(), true);
  writer.begin_image({});
  const Event birth{.kind = Kind::thread_begin, .thread = 1, .time_ns = 1};
  writer.add(0, birth);
  writer.finish();
  Reader reader{file.path()};
  reader.verify();
  EXPECT_TRUE(reader.is_whole());
  EXPECT_EQ(reader.images()[0].threads, 2U);
  Cursor cursor = reader.events(0);
  Event event;
  ASSERT_TRUE(cursor.next(event));
  EXPECT_EQ(event, birth);
}

}  // namespace
}  // namespace ts::trace::testing
