// The trace format: what is written is read; what is damaged, cut off or a lie is refused in a
// sentence. And which slots objects get.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "synthetic.h"
#include "trace/reader.h"
#include "trace/slots.h"
#include "trace/writer.h"

namespace ts::trace::testing {
namespace {

class Format : public ::testing::Test {
 protected:
  ~Format() override { unlink(path.c_str()); }

  void put(const std::string& bytes) const {
    std::ofstream{path, std::ios::binary | std::ios::trunc} << bytes;
  }
  std::string bytes() const {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
  }

  // What is in the file, as far as it can be read; `said` is what is wrong.
  std::string read() {
    std::string plain;
    Reader reader;
    Problem problem;
    said.clear();
    is_finished = false;
    if (!reader.open(path.c_str(), problem)) {
      said = problem.text;
      return plain;
    }
    Reader::ReadStatus found{};
    while ((found = reader.next(problem)) == Reader::ReadStatus::chunk) {
      plain.append(reinterpret_cast<const char*>(reader.plain().data()), reader.plain().size());
    }
    if (found == Reader::ReadStatus::problem) said = problem.text;
    is_finished = reader.is_finished();
    return plain;
  }

  void expect_refused(const std::string& content, const std::string& why) {
    put(content);
    read();
    EXPECT_NE(said.find(why), std::string::npos) << why << ": " << said;
  }

  const std::string image =
      frame_of(header_of(ChunkType::image), bytes_of(ImageBegin{no_image, {}, 0, 0, {}, {}}));
  std::string path = ::testing::TempDir() + "trace-" + std::to_string(getpid());
  std::string said;
  bool is_finished = false;
};

TEST_F(Format, EventsAreReadAsTheyWereWritten) {
  std::vector<Event> written[2];
  {
    Writer writer{path};
    writer.begin_image({.begin_ns = 9, .program = "/usr/bin/one", .allocator = "libc.so.6"});
    writer.begin_image({.parent = 0, .birth = Birth::exec, .program = std::string(300, 'x')});
    std::mt19937_64 random;
    for (std::uint32_t i = 0; i < 150'000; ++i) {  // several chunks
      Event event{.time_ns = random(), .size = random(), .site = random()};
      event.slot = static_cast<std::uint32_t>(random() % (i + 1));
      event.generation = static_cast<std::uint32_t>(random());
      event.kind = static_cast<Kind>(random() % 6);
      event.log2_alignment = static_cast<std::uint8_t>(random() % 64);
      writer.add(i % 3 == 0 ? 1 : 0, event);
      written[i % 3 == 0 ? 1 : 0].push_back(event);
      if (i == 777) writer.flush();
    }
    writer.end_image(1, End::killed, 77);
    writer.finish();
  }
  Reader reader;
  Problem problem;
  ASSERT_TRUE(reader.open(path.c_str(), problem)) << problem.text;
  std::vector<Event> found[2];
  std::string programs;
  Reader::ReadStatus step{};
  while ((step = reader.next(problem)) == Reader::ReadStatus::chunk) {
    const ChunkHeader& header = reader.header();
    if (header.type == ChunkType::image)
      programs += std::string{reader.image_begin().program} + " ";
    if (header.type == ChunkType::image_end && header.image == 1) {
      EXPECT_EQ(reader.image_end().end, End::killed);
      EXPECT_EQ(reader.image_end().end_ns, 77U);
      EXPECT_EQ(reader.image_end().events, written[1].size());
    }
    if (header.type != ChunkType::events) continue;
    EXPECT_EQ(header.first, found[header.image].size());
    found[header.image].insert(found[header.image].end(), reader.events().begin(),
                               reader.events().end());
  }
  EXPECT_EQ(step, Reader::ReadStatus::end) << problem.text;
  EXPECT_TRUE(reader.is_finished());
  EXPECT_EQ(found[0], written[0]);
  EXPECT_EQ(found[1], written[1]);
  EXPECT_EQ(programs, "one " + std::string(63, 'x') + " ");
}

// A recorder that is killed leaves whole chunks; anything else is cut off in between.
TEST_F(Format, ATraceThatIsCutOffIsReadUpToThereOrRefused) {
  replay::testing::write_synthetic(path, {.events = 60, .forks = 1, .execs = 1});
  const std::string whole = bytes();
  const std::string plain = read();
  ASSERT_EQ(said, "");
  ASSERT_TRUE(is_finished);
  int readable = 0;
  for (std::size_t size = 4; size < whole.size(); ++size) {
    put(whole.substr(0, size));
    const std::string found = read();
    EXPECT_TRUE(plain.starts_with(found)) << size;
    EXPECT_FALSE(is_finished) << size;
    if (said.empty()) {
      ++readable;
    } else {
      EXPECT_NE(said.find("copy it again, or record it again"), std::string::npos) << said;
    }
  }
  EXPECT_GE(readable, 5);  // ends of chunks
}

TEST_F(Format, AChangedBitIsNoticed) {
  replay::testing::write_synthetic(path, {.events = 30, .forks = 1, .execs = 1});
  const std::string whole = bytes();
  const std::string plain = read();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ (1 << i % 8));
    put(changed);
    const std::string found = read();
    // zstd has bits that mean nothing; then all is as it was.
    EXPECT_TRUE(!said.empty() || found == plain) << "byte " << i;
    EXPECT_TRUE(plain.starts_with(found)) << "byte " << i;
  }
}

// Whatever is in a chunk whose checksum is right.
TEST_F(Format, ChunksThatLieAreRefused) {
  Event event;
  const auto events = [](const std::vector<Event>& all, std::uint64_t first = 0) {
    return frame_of(header_of(ChunkType::events, 0, static_cast<std::uint32_t>(all.size()), first),
                    transposed(all));
  };
  const std::string one = events({event});

  put(image + one);
  read();
  EXPECT_EQ(said, "");
  ChunkHeader wrong = header_of(ChunkType::image);
  wrong.magic[0] = 'X';
  expect_refused(frame_of(wrong, ""), "wrong magic number");
  wrong = header_of(ChunkType::image);
  wrong.version = 3;
  expect_refused(frame_of(wrong, ""), "unknown version");
  expect_refused(frame_of(header_of(static_cast<ChunkType>(9)), ""), "unknown type");
  expect_refused(frame_of(header_of(ChunkType::image), "short"), "the size that it states");
  expect_refused(one, "events belong to no process");
  expect_refused(image + frame_of(header_of(ChunkType::events, 0, 2), transposed({event})),
                 "the size that it states");
  expect_refused(image + frame_of(header_of(ChunkType::events, 0, 0), ""),
                 "the size that it states");
  expect_refused(image + events({event}, 1), "events are not in order");
  expect_refused(image + one + one, "events are not in order");
  expect_refused(image + image, "processes are not in order");
  const auto ends = [](std::uint64_t count) {
    return frame_of(header_of(ChunkType::image_end), bytes_of(ImageEnd{count, 0, 1, {}}));
  };
  expect_refused(image + one + ends(2), "the number of events that it states");
  expect_refused(image + one + ends(1) + events({event}, 1), "events belong to no process");
  const auto finish = [](std::uint64_t count, std::uint32_t images) {
    return frame_of(header_of(ChunkType::trace_end), bytes_of(TraceEnd{count, images, 0}));
  };
  expect_refused(image + one + finish(2, 1), "the number of events that it states");
  expect_refused(image + one + finish(1, 2), "the number of events that it states");
  expect_refused(image + one + finish(1, 1) + one, "data after its end");
  expect_refused(
      image + one +
          frame_of(header_of(ChunkType::trace_end, 1U << 31), bytes_of(TraceEnd{1, 1, 0})),
      "belongs to a process");
  expect_refused("\x28\xb5\x2f\xfd garbage that is no frame", "at byte 0; copy it again");
}

TEST_F(Format, EventsThatAreImpossibleAreRefused) {
  const std::pair<Event, const char*> wrong[] = {
      {{.kind = Kind::count}, "unknown kind"},
      {{.reserved = 1}, "unknown kind"},
      {{.log2_alignment = 64}, "alignment is impossible"},
      {{.slot = 8}, "slot is too high"},
      {{.thread = 1}, "acts before it starts"},
      {{.thread = 2, .kind = Kind::thread_begin}, "threads are not in order"},
      {{.slot = 1, .thread = 1, .kind = Kind::thread_begin}, "threads are not in order"}};
  for (const auto& [event, why] : wrong) {
    expect_refused(image + frame_of(header_of(ChunkType::events, 0, 1), transposed({event})), why);
  }
}

TEST_F(Format, ForksThatDoNotFitAreRefused) {
  const auto child = [](std::uint32_t of, std::uint64_t at) {
    return frame_of(header_of(ChunkType::image, 1),
                    bytes_of(ImageBegin{of, Birth::fork, at, 0, {}, {}}));
  };
  const auto events = [](Kind kind, std::uint32_t slot, std::uint64_t first) {
    return frame_of(header_of(ChunkType::events, 0, 1, first),
                    transposed({event_of(kind, 0, {slot, 0})}));
  };
  put(image + events(Kind::malloc, 0, 0) + child(0, 1) + events(Kind::fork, 1, 1));
  read();
  EXPECT_EQ(said, "");
  expect_refused(image + child(5, 0), "has no parent");
  expect_refused(image + child(no_image, 0), "has no parent");
  expect_refused(image + child(0, 1), "not forked at a fork");
  expect_refused(image + child(0, 0) + events(Kind::malloc, 0, 0), "not forked at a fork");
  expect_refused(image + child(0, 0) + events(Kind::fork, 0, 0), "not forked at a fork");
  ImageBegin endless{};
  std::fill(std::begin(endless.program), std::end(endless.program), 'x');
  expect_refused(frame_of(header_of(ChunkType::image), bytes_of(endless)), "has no parent");
  endless.parent = no_image;
  expect_refused(frame_of(header_of(ChunkType::image), bytes_of(endless)), "not terminated");
}

// --- slots, against a naive account of what lives ---

// Random allocations and frees by several threads, which come and go.
void check(std::uint32_t threads, std::uint64_t seed, std::size_t about_live) {
  Slots slots;
  std::mt19937_64 random{seed};
  std::vector<Slot> live;
  std::map<std::uint32_t, std::uint32_t> made;  // objects of each slot so far
  std::map<std::uint32_t, bool> is_taken;
  std::size_t max_live = 0;
  for (std::uint64_t now = 0; now < 100'000; ++now) {
    const auto thread = static_cast<std::uint32_t>(random() % threads);
    if (random() % 500 == 0) slots.end_thread(thread, now);
    if (random() % (2 * about_live) >= live.size()) {
      const Slot slot = slots.take(thread, now);
      ASSERT_FALSE(is_taken[slot.number]);
      ASSERT_EQ(slot.generation, made[slot.number]++);
      ASSERT_LT(slot.number, slots.count());
      is_taken[slot.number] = true;
      live.push_back(slot);
    } else {
      const std::size_t place = random() % live.size();
      slots.give_back(live[place], thread, now);
      is_taken[live[place].number] = false;
      live[place] = live.back();
      live.pop_back();
    }
    max_live = std::max(max_live, live.size());
  }
  // Each thread keeps some for itself, and what was freed lately is nobody's yet.
  EXPECT_LE(slots.count(), threads == 1 ? max_live + 5'000 : max_live + threads * 256 + 10'000);
}

TEST(Slots, NoTwoLivingObjectsShareOne) {
  check(1, 1, 300);
  check(2, 2, 300);
  check(16, 3, 2'000);
}

TEST(Slots, AThreadReusesItsOwnAtOnceAndOthersLater) {
  Slots slots;
  const Slot first = slots.take(0, 0);
  slots.take(1, 1);
  slots.give_back(first, 1, 2);  // what a consumer frees, it keeps
  EXPECT_EQ(slots.take(1, 3), (Slot{first.number, 1}));
  slots.give_back({first.number, 1}, 1, 4);
  slots.end_thread(1, 5);
  std::vector<Slot> taken;
  for (int i = 0; i < 8; ++i) taken.push_back(slots.take(0, 6));
  for (const Slot slot : taken) EXPECT_NE(slot.number, first.number);
  bool is_found = false;
  for (int i = 0; i < 8; ++i) is_found |= slots.take(0, 10'000) == Slot{first.number, 2};
  EXPECT_TRUE(is_found);
}

}  // namespace
}  // namespace ts::trace::testing
