// Interprets any bytes as a trace: the reader rejects it with a message or reads it, and what it
// reads can be loaded for a replay or is rejected too.
//
// Traces come from elsewhere. The first byte of an input says whether the rest is a file, or plain
// chunks to pack here, so that inputs get past compression and checksums.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "native/synthetic.h"
#include "replay/plan.h"
#include "target.h"
#include "trace/reader.h"

namespace ts {

const char* tool_name() { return "fuzz_trace_reader"; }

}  // namespace ts

namespace {

using namespace ts::trace;

void require(bool is_kept) {
  if (!is_kept) std::abort();
}

std::size_t body_bytes(const ChunkHeader& header) {
  switch (header.type) {
    case ChunkType::image:
      return sizeof(ImageBegin);
    case ChunkType::events:
      return std::size_t{header.count % 1024} * sizeof(Event);
    case ChunkType::image_end:
      return sizeof(ImageEnd);
    default:
      return sizeof(TraceEnd);
  }
}

std::string packed(std::string plain) {
  std::string file;
  while (plain.size() >= sizeof(ChunkHeader)) {
    ChunkHeader header;
    std::memcpy(&header, plain.data(), sizeof header);
    const std::size_t body = std::min(body_bytes(header), plain.size() - sizeof header);
    file += ts::trace::testing::frame_of(header, plain.substr(sizeof header, body));
    plain.erase(0, sizeof header + body);
  }
  return file;
}

void check(const char* path) {
  Reader reader;
  Problem problem;
  if (!reader.open(path, problem)) return require(problem.text[0] != '\0');
  Reader::ReadStatus found{};
  std::uint64_t events = 0;
  while ((found = reader.next(problem)) == Reader::ReadStatus::chunk) {
    if (reader.header().type != ChunkType::events) continue;
    events += reader.events().size();
    for (const Event& event : reader.events()) {
      require(event.kind < Kind::count && event.thread <= events && event.thread < max_threads);
      require(!has_object(event.kind) || event.slot < slots_below(events));
    }
  }
  const bool is_readable = found == Reader::ReadStatus::end;
  require(is_readable == (problem.text[0] == '\0'));
  ts::plan::Plan plan;
  Problem refusal;
  const bool is_loaded = plan.load(path, {.window = 3}, refusal);
  require(is_loaded == (refusal.text[0] == '\0'));
  require(is_readable || !is_loaded);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string bytes{reinterpret_cast<const char*>(data) + 1, size - 1};
  if (data[0] % 4 != 0) bytes = packed(bytes);
  static const int file = memfd_create("trace", 0);
  require(ftruncate(file, 0) == 0);
  require(pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  check(("/proc/self/fd/" + std::to_string(file)).c_str());
  return 0;
}
