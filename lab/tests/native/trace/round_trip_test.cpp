// What goes in comes out: random streams through files, and seeks into them.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "samples.h"
#include "trace/format/columns.h"
#include "trace/format/reader.h"

namespace ts::trace::testing {
namespace {

Events read_all(const Reader& reader, std::uint32_t image) {
  Events events;
  Cursor cursor = reader.events(image);
  for (Event event; cursor.next(event);) {
    EXPECT_EQ(cursor.number(), events.size());
    EXPECT_EQ(cursor.gap(), nullptr);
    events.push_back(event);
  }
  EXPECT_EQ(cursor.gap(), nullptr);
  return events;
}

class RoundTrip : public ::testing::TestWithParam<std::uint64_t> {};

// Several images, in random turns, with random flushes, one of which may have no event at all.
TEST_P(RoundTrip, RandomStreamsComeBackExactly) {
  std::mt19937_64 random{GetParam()};
  MemoryFile file;
  Writer writer = Writer(file.path(), true);
  const std::size_t image_count = 1 + random() % 5;
  std::vector<RandomEvents> sources;
  std::vector<Events> written(image_count);
  std::vector<std::uint64_t> first_objects;
  for (std::size_t i = 0; i < image_count; ++i) {
    Image image;
    image.first_object = random() % 3 == 0 ? random() % max_events : 0;
    image.program = "program" + std::to_string(i);
    ASSERT_EQ(writer.begin_image(image), i);
    first_objects.push_back(image.first_object);
    sources.emplace_back(random(), image.first_object);
  }
  const std::size_t count = random() % (GetParam() % 4 == 0 ? 300'000 : 3'000);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t image = std::min(random() % image_count, random() % image_count);
    written[image].push_back(sources[image].next());
    writer.add(static_cast<std::uint32_t>(image), written[image].back());
    if (random() % 5'000 == 0) writer.flush();
  }
  writer.end_image(0, Image::End::exec, 123);
  writer.finish();
  EXPECT_EQ(writer.bytes_written(), file.bytes().size());

  Reader reader{file.path()};
  reader.verify();
  ASSERT_TRUE(reader.is_whole()) << reader.damage().front().text;
  ASSERT_EQ(reader.images().size(), image_count);
  for (std::uint32_t number = 0; number < image_count; ++number) {
    const Events& events = written[number];
    const Image& image = reader.images()[number];
    EXPECT_EQ(image.number, number);
    EXPECT_EQ(image.program, "program" + std::to_string(number));
    EXPECT_EQ(image.allocator, "");
    EXPECT_EQ(image.first_object, first_objects[number]);
    EXPECT_EQ(image.events, events.size());
    EXPECT_EQ(image.objects, static_cast<std::uint64_t>(std::count_if(
                                 events.begin(), events.end(),
                                 [](const Event& event) { return makes_object(event.kind); })));
    EXPECT_EQ(image.end, number == 0 ? Image::End::exec : Image::End::unknown);
    ASSERT_EQ(read_all(reader, number), events);
    for (int i = 0; i < 20; ++i) {
      const std::uint64_t from = random() % (events.size() + 3);
      Cursor cursor = reader.events(number, from);
      Event event;
      for (std::uint64_t k = from; k < std::min<std::uint64_t>(from + 600, events.size()); ++k) {
        ASSERT_TRUE(cursor.next(event));
        ASSERT_EQ(cursor.number(), k);
        ASSERT_EQ(event, events[k]);
      }
      if (from + 600 >= events.size()) {
        EXPECT_FALSE(cursor.next(event));
      }
      EXPECT_EQ(cursor.gap(), nullptr);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RoundTrip, ::testing::Range<std::uint64_t>(0, 24));

// The goal is 10 bytes; a program that is as regular as most takes far fewer.
TEST(TraceSize, APlausibleProgramTakesFewBytesAnEvent) {
  for (const std::uint32_t threads : {1U, 8U}) {
    MemoryFile file;
    Writer writer = Writer(file.path(), true);
    writer.begin_image({});
    PlausibleEvents source{3, threads};
    constexpr std::uint64_t count = 300'000;
    for (std::uint64_t i = 0; i < count; ++i) writer.add(0, source.next());
    writer.finish();
    const double bytes_per_event = static_cast<double>(file.bytes().size()) / count;
    RecordProperty("bytes_per_event_" + std::to_string(threads), std::to_string(bytes_per_event));
    EXPECT_LT(bytes_per_event, 4.0) << threads << " threads";
    EXPECT_GT(bytes_per_event, 1.0);  // or the test's program is no program
  }
}

TEST(TraceSize, TheWorstEventsTakeNoMoreThanTheFormatSays) {
  MemoryFile file;
  Writer writer = Writer(file.path(), true);
  writer.begin_image({});
  std::mt19937_64 random{5};
  Events written;
  for (std::uint32_t i = 0; i < 70'000; ++i) {
    Event event;
    event.kind = Kind::aligned;
    event.log2_alignment = static_cast<std::uint8_t>(random() % 64);
    event.object = i;
    event.thread = i % 1'000 < std::min(i, 1'000U) ? i % 1'000 : 0;
    event.size = random() | 1ULL << 63;
    event.time_ns = random();
    writer.add(0, event);
    written.push_back(event);
  }
  writer.finish();
  EXPECT_LT(file.bytes().size(), 70'000 * std::size_t{max_event_bytes});
  const Reader reader{file.path()};
  EXPECT_EQ(read_all(reader, 0), written);
}

}  // namespace
}  // namespace ts::trace::testing
