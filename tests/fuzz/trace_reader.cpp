// Any bytes as a trace: the reader refuses them or reads them, and keeps its promises.
//
// Why it exists: traces come from elsewhere. What it refuses to do: spend its time on checksums.
// Its mutator makes them right again after most changes, so that what lies behind them is
// reached.
#include <cstdlib>
#include <iterator>
#include <random>

#include "samples.h"
#include "trace/format/reader.h"

using namespace ts::trace;

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

// A small file can hold a great many events; enough of them are enough.
constexpr std::uint64_t most_events = 150'000;

void require(bool is_kept) {
  if (!is_kept) std::abort();
}

struct Read {
  std::uint64_t events = 0;
  bool has_gap = false;
  bool is_complete = true;  // not given up for being long
};

Read read_image(const Reader& reader, const Image& image) {
  Read read;
  std::uint64_t expected = 0;
  const auto pass_gap = [&](const Gap* gap) {
    if (gap == nullptr) return;
    read.has_gap = true;
    require(gap->first_event == expected && !gap->text.empty());
    expected += gap->events;
  };
  Cursor cursor = reader.events(image.number);
  std::uint64_t kept_number = 0;
  Event kept;
  Event event;
  while (cursor.next(event)) {
    pass_gap(cursor.gap());
    require(cursor.number() == expected);
    require(event.kind < Kind::count && event.thread <= cursor.number() + 1);
    require(event.thread < max_threads && event.log2_alignment <= max_log2_alignment);
    require(event.object <= 2 * max_events);
    if (expected % 89 == 0) {
      kept = event;
      kept_number = expected;
    }
    ++expected;
    if (++read.events == most_events) {
      read.is_complete = false;
      return read;
    }
  }
  pass_gap(cursor.gap());
  require(!cursor.next(event));
  require(expected == image.events);
  if (read.events > 0) {
    Cursor second = reader.events(image.number, kept_number);
    if (second.next(event) && second.number() == kept_number) require(event == kept);
  }
  return read;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static ts::trace::testing::MemoryFile file;
  file.set({data, size});
  try {
    Reader reader{file.path()};
    bool has_gap = false;
    for (const Image& image : reader.images()) {
      const Read read = read_image(reader, image);
      has_gap |= read.has_gap;
      if (!read.is_complete) return 0;
    }
    reader.verify();
    require(!has_gap || !reader.is_whole());
    require(reader.damage().size() <= Reader::max_damages);
  } catch (const Error& error) {
    require(*error.what() != '\0');
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  std::minstd_rand random{seed};
  Bytes bytes{data, data + LLVMFuzzerMutate(data, size, max_size)};
  if (random() % 16 != 0) ts::trace::testing::repair_checksums(bytes);
  if (random() % 3 == 0) ts::trace::testing::rebuild_index(bytes);
  bytes.resize(std::min(bytes.size(), max_size));
  std::copy(bytes.begin(), bytes.end(), data);
  return bytes.size();
}
