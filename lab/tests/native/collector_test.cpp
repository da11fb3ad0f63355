// The collector over a ring into which the test writes as programs do, and stops where they might
// die; and its parts.
#include "record/collector/collector.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "trace/reader.h"

namespace ts::record {
namespace {

using trace::End;

struct ReadImage {
  std::vector<Event> events;
  bool has_ended = false;
};

class CollectorTest : public testing::Test {
 protected:
  static constexpr std::size_t chunk_count = 8;

  CollectorTest() : collector{ring, clock, sink} { sink.open(path); }
  ~CollectorTest() override {
    unlink(path.c_str());
    munmap(static_cast<void*>(&ring), sizeof(Ring) + chunk_count * chunk_bytes);
  }

  static Ring& map_ring() {
    void* const mapped = mmap(nullptr, sizeof(Ring) + chunk_count * chunk_bytes,
                              PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    Ring& fresh = *::new (mapped) Ring;  // no value: it is all zeros
    fresh.chunk_count = chunk_count;
    return fresh;
  }

  // An image whose process lives as long as this one, unless another is named.
  ImagePlace& begin_image(std::uint32_t index, std::int32_t pid = getpid()) {
    ImagePlace& place = ring.images[index];
    EXPECT_EQ(place.claimed_by.load(), 0);
    place.claimed_by = pid;
    place.index = index;
    place.birth = ImageBirth::exec;
    place.parent_pid = getppid();
    place.begin_time = clock.read();
    std::strcpy(place.program, "program");
    std::strcpy(place.allocator, "libc.so.6");
    place.next_ticket = 1;
    place.next_thread = 1;
    place.id = ring.next_id.fetch_add(1) + 1;
    place.is_ready = 1;
    return place;
  }

  Chunk& take_chunk(const ImagePlace& place, std::uint32_t thread) {
    for (std::uint32_t i = 0;; ++i) {
      if (ring.owners[i].load() != 0) continue;
      ring.owners[i] = place.index + 1;
      Chunk& chunk = ring.chunks()[i];
      EXPECT_EQ(chunk.records[0].ticket.load(), 0U);
      chunk.head.thread = thread;
      chunk.head.index = i;
      return chunk;
    }
  }

  void publish(Record& record, std::uint64_t ticket, RawKind kind, std::uint64_t address,
               std::uint64_t size = 0) {
    record.what = Record::pack(kind, address, 0);
    record.size = size;
    record.time = clock.read();
    record.ticket = ticket;
  }

  void collect() {
    for (int i = 0; i < 3; ++i) collector.collect();
  }

  // Until gaps have been given up.
  void collect_patiently() {
    collect();
    usleep(30'000);
    collect();
  }

  // What is in the trace by now.
  std::vector<ReadImage> images() {
    sink.flush();
    std::vector<ReadImage> found;
    trace::Reader reader;
    trace::Problem problem;
    if (sink.bytes() == 0) return found;
    EXPECT_TRUE(reader.open(path.c_str(), problem)) << problem.text;
    trace::Reader::ReadStatus status{};
    while ((status = reader.next(problem)) == trace::Reader::ReadStatus::chunk) {
      const trace::ChunkHeader& header = reader.header();
      if (header.type == trace::ChunkType::image) found.emplace_back();
      if (header.type == trace::ChunkType::image_end) found[header.image].has_ended = true;
      if (header.type != trace::ChunkType::events) continue;
      const auto events = reader.events();
      found[header.image].events.insert(found[header.image].events.end(), events.begin(),
                                        events.end());
    }
    EXPECT_EQ(status, trace::Reader::ReadStatus::end) << problem.text;
    return found;
  }

  std::vector<Event> events(std::size_t image = 0) { return images().at(image).events; }

  std::string path = ::testing::TempDir() + "collector-" + std::to_string(getpid());
  Clock clock;
  TraceSink sink;
  Ring& ring = map_ring();
  Collector collector;
};

// A record that was found in a round may depend on one that the round had already passed by.
TEST_F(CollectorTest, NothingGoesOutInTheRoundThatFoundIt) {
  ImagePlace& image = begin_image(0);
  Chunk& late = take_chunk(image, 0);
  Chunk& early = take_chunk(image, 1);
  publish(early.records[0], 2, RawKind::free, 0x10);
  collector.collect();
  EXPECT_TRUE(images().empty() || events().empty());
  publish(late.records[0], 1, RawKind::malloc, 0x10, 5);
  collect();
  ASSERT_EQ(events().size(), 3U);  // with the second thread's birth
  EXPECT_EQ(events()[0].kind, Kind::malloc);
  EXPECT_EQ(events().back().kind, Kind::free);
}

TEST_F(CollectorTest, TicketsThatAreNeverPublishedHoldNothingUpForLong) {
  ImagePlace& image = begin_image(0);
  Chunk& chunk = take_chunk(image, 0);
  publish(chunk.records[0], 1, RawKind::malloc, 0x10, 5);
  publish(chunk.records[2], 3, RawKind::malloc, 0x20, 6);  // record 1 and ticket 2 were left
  const std::uint64_t begin_ns = clock.to_ns(clock.read());
  collect();
  if (clock.to_ns(clock.read()) - begin_ns < gap_timeout_ns) {  // else it may have been given up
    EXPECT_EQ(events().size(), 1U);
  }
  collect_patiently();
  EXPECT_EQ(events().size(), 2U);
  publish(chunk.records[1], 2, RawKind::malloc, 0x30, 7);  // its thread was only asleep
  collect();
  ASSERT_EQ(events().size(), 3U);
  EXPECT_EQ(events()[2].size, 7U);
}

TEST_F(CollectorTest, FullChunksAreGivenBackAndClean) {
  ImagePlace& image = begin_image(0);
  std::uint64_t ticket = 0;
  for (std::size_t round = 0; round < 5 * chunk_count; ++round) {
    Chunk& chunk = take_chunk(image, 0);  // checks that there is one
    for (Record& record : chunk.records) {
      ++ticket;
      publish(record, ticket, RawKind::malloc, 16 * ticket, ticket);
    }
    if (round % 4 == 3) collect();
  }
  collect();
  const std::vector<Event> all = events();
  EXPECT_EQ(all.size(), ticket);
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i].size, i + 1);
  for (std::size_t i = 0; i < chunk_count; ++i) EXPECT_EQ(ring.owners[i].load(), 0U);
}

TEST_F(CollectorTest, ChunksOfThreadsThatEndAreGivenBack) {
  ImagePlace& image = begin_image(0);
  Chunk& chunk = take_chunk(image, 3);
  publish(chunk.records[0], 1, RawKind::malloc, 0x10, 5);
  publish(chunk.records[1], 2, RawKind::thread_end, 3);
  chunk.head.ignored = 4;
  chunk.head.closed = 3;
  collect();
  EXPECT_EQ(ring.owners[chunk.head.index].load(), 0U);
  EXPECT_EQ(events().back().kind, Kind::thread_end);
  collector.conclude();
  EXPECT_EQ(collector.reports().at(0).null_frees, 4U);
}

TEST_F(CollectorTest, ADeadProcessLosesNothingAndKeepsNothing) {
  const pid_t child = fork();
  if (child == 0) {
    sleep(60);
    _exit(0);
  }
  ImagePlace& image = begin_image(0, child);
  Chunk& one = take_chunk(image, 0);
  take_chunk(image, 1);  // killed between taking it and its first record
  publish(one.records[0], 1, RawKind::malloc, 0x10, 5);
  publish(one.records[1], 9, RawKind::malloc, 0x20, 6);
  collect();
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  collector.note_end(child, status);
  for (int i = 0; i < 100 && collector.reports().empty(); ++i) {
    usleep(10'000);
    collector.collect();
  }
  ASSERT_EQ(collector.reports().size(), 1U);
  EXPECT_EQ(collector.reports()[0].end, End::killed);
  EXPECT_EQ(events().size(), 2U);
  EXPECT_EQ(image.claimed_by.load(), 0);
  for (std::size_t i = 0; i < chunk_count; ++i) EXPECT_EQ(ring.owners[i].load(), 0U);
}

TEST_F(CollectorTest, AChildThatIsMetBeforeItsForkWaits) {
  ImagePlace& parent = begin_image(0);
  Chunk& chunk = take_chunk(parent, 0);
  publish(chunk.records[0], 1, RawKind::malloc, 0x10, 5);
  collect();
  ImagePlace& child = begin_image(1, getppid());  // some other process that lives
  child.birth = ImageBirth::fork;
  child.parent_id = parent.id;
  child.fork_number = 1;
  Chunk& childs = take_chunk(child, 0);
  publish(childs.records[0], 1, RawKind::free, 0x10);
  collect();
  EXPECT_EQ(images().size(), 1U);
  publish(chunk.records[1], 2, RawKind::fork, 1);
  collect();
  ASSERT_EQ(images().size(), 2U);
  EXPECT_EQ(events(0).back().kind, Kind::fork);
  ASSERT_EQ(events(1).size(), 1U);
  EXPECT_EQ(events(1)[0].kind, Kind::free);
  EXPECT_EQ(events(1)[0].slot, events(0)[0].slot);
}

TEST_F(CollectorTest, AForkThatFailedIsAnImageWithoutEvents) {
  ImagePlace& parent = begin_image(0);
  publish(take_chunk(parent, 0).records[0], 1, RawKind::fork, 1);
  collect();
  collector.conclude();
  ASSERT_EQ(images().size(), 2U);
  EXPECT_TRUE(events(1).empty());
  EXPECT_TRUE(images()[1].has_ended);
  EXPECT_EQ(collector.reports().size(), 1U);
}

TEST_F(CollectorTest, AResizeWhoseEndIsLostIsToldAtTheEnd) {
  ImagePlace& image = begin_image(0);
  Chunk& chunk = take_chunk(image, 0);
  publish(chunk.records[0], 1, RawKind::malloc, 0x10, 5);
  publish(chunk.records[1], 2, RawKind::leave, 0x10);
  collect();
  collector.conclude();
  EXPECT_EQ(collector.reports().at(0).sums.unfinished, 1U);
}

TEST_F(CollectorTest, OverwrittenMemoryHurtsNobodyElse) {
  ImagePlace& wild = begin_image(0);
  ImagePlace& tame = begin_image(1, getppid());
  std::memset(static_cast<void*>(take_chunk(wild, 0).records), 0xff, sizeof(Chunk) - 32);
  publish(take_chunk(tame, 0).records[0], 1, RawKind::malloc, 0x10, 5);
  publish(take_chunk(tame, UINT32_MAX).records[0], 2, RawKind::malloc, 0x20, 5);
  collect_patiently();
  ring.owners[5] = 40'000;  // no such image
  ring.owners[6] = max_images;
  collect_patiently();
  collector.conclude();
  std::size_t count = 0;
  for (const ReadImage& image : images()) count += image.events.size();
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(collector.reports().at(1).sums.threads, 1U);  // a thread of no such number is the first
}

// --- parts ---

using Numbers = std::vector<std::uint64_t>;

class TicketWindowTest : public testing::Test {
 protected:
  void add(std::uint64_t ticket) {
    Record& record = records_.emplace_back();
    record.ticket.store(ticket);
    EXPECT_TRUE(window.add(record));
  }

  Numbers deliver(std::uint64_t limit, bool passes_gaps = false) {
    Numbers tickets;
    window.deliver(limit, passes_gaps,
                   [&](const Record& record) { tickets.push_back(record.ticket.load()); });
    return tickets;
  }

  TicketWindow window;
  std::deque<Record> records_;
};

TEST_F(TicketWindowTest, StopsAtTheLimitAndAtGapsUnlessTheyArePassedAndTakesLateOnesFirst) {
  for (const std::uint64_t ticket : Numbers{3, 1, 2, 5, 8, 10}) add(ticket);
  EXPECT_EQ(deliver(2), (Numbers{1, 2}));
  EXPECT_EQ(deliver(2), Numbers{});
  EXPECT_EQ(deliver(5), Numbers{3});
  EXPECT_EQ(window.next(), 4U);
  EXPECT_EQ(window.highest(), 10U);
  add(4);
  EXPECT_EQ(deliver(5), (Numbers{4, 5}));
  EXPECT_EQ(deliver(8, true), Numbers{8});
  for (const std::uint64_t ticket : Numbers{7, 6, 9}) add(ticket);
  EXPECT_EQ(deliver(10), (Numbers{6, 7, 9, 10}));
  Record wild{};  // nobody can have drawn it
  wild.ticket.store(std::uint64_t{1} << 60);
  EXPECT_FALSE(window.add(wild));
}

// Clusters are where an erasure can hide a neighbour; with many addresses the map grows.
TEST(ObjectMap, AgreesWithAMapOfTheStandardLibrary) {
  for (const std::uint64_t addresses : {150U, 20'000U}) {
    std::mt19937_64 random{1};
    ObjectMap map;
    std::map<std::uint64_t, std::uint64_t> expected;
    EXPECT_FALSE(map.take(16).has_value());
    for (std::uint64_t i = 0; i < 200'000; ++i) {
      const std::uint64_t address = 16 * (1 + random() % addresses);
      const auto found = expected.find(address);
      const auto former = found != expected.end() ? std::optional{found->second} : std::nullopt;
      if (random() % 2 == 0) {
        ASSERT_EQ(map.put(address, i), former);
        expected[address] = i;
      } else {
        ASSERT_EQ(map.take(address), former);
        expected.erase(address);
      }
    }
  }
}

}  // namespace
}  // namespace ts::record
