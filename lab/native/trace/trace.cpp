// trace: reads traces for programs that have no zstd, and checks them: `trace unpack` prints the
// plain chunks, `trace info` a summary.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "common/json_line.h"
#include "common/system.h"
#include "trace/reader.h"

namespace ts {

const char* tool_name() { return "trace"; }

namespace trace {
namespace {

constexpr char help[] =
    R"(usage: trace unpack TRACE    write the chunks of a trace, as in docs/formats/trace.md, to
                              standard output
       trace info TRACE      its processes, as a line of JSON
Exit status: 0 success; 1 the trace cannot be read, is damaged or truncated; 2 usage error.
)";

constexpr int exit_failed = 1;
constexpr int exit_usage = 2;

int fail(const Problem& problem) {
  static_cast<void>(std::fprintf(stderr, "trace: %s\n", problem.text));
  return exit_failed;
}

int unpack(Reader& reader) {
  Problem problem;
  Reader::ReadStatus found{};
  while ((found = reader.next(problem)) == Reader::ReadStatus::chunk) {
    const auto chunk = reader.plain();
    if (const int error = write_all(STDOUT_FILENO, chunk.data(), chunk.size())) {
      if (error == EPIPE) return 0;  // the reader has read enough
      refuse(problem, "cannot write: %s.", std::strerror(error));
      return fail(problem);
    }
  }
  return found == Reader::ReadStatus::problem ? fail(problem) : 0;
}

struct Row {
  ImageBegin begin;
  ImageEnd end;
};

void write_row(JsonLine& line, std::size_t number, const Row& row) {
  line.begin_object();
  line.add("number", number);
  line.add_text("birth", name(row.begin.birth));
  line.add_if(row.begin.parent != no_image, "parent", row.begin.parent);
  line.add("begin_ns", row.begin.begin_ns);
  line.add_text("program", row.begin.program);
  line.add_text("allocator", row.begin.allocator);
  line.add("events", row.end.events);
  line.add("threads", row.end.threads);
  line.add("end_ns", row.end.end_ns);
  line.add_text("end", name(row.end.end));
  line.end_object();
}

int info(Reader& reader) {
  Problem problem;
  std::vector<Row> rows;
  Reader::ReadStatus found{};
  std::uint64_t events = 0;
  while ((found = reader.next(problem)) == Reader::ReadStatus::chunk) {
    const ChunkHeader& chunk = reader.header();
    if (chunk.type == ChunkType::image)
      rows.push_back({reader.image_begin(), {.events = 0, .end_ns = 0, .threads = 1, .end = {}}});
    if (chunk.type == ChunkType::image_end) rows[chunk.image].end = reader.image_end();
    if (chunk.type != ChunkType::events) continue;
    events += chunk.count;
    ImageEnd& so_far = rows[chunk.image].end;
    so_far.events += chunk.count;
    for (const Event& event : reader.events()) {
      so_far.end_ns = event.time_ns;
      if (event.kind == Kind::thread_begin) ++so_far.threads;
    }
  }
  if (found == Reader::ReadStatus::problem) return fail(problem);
  JsonLine line{STDOUT_FILENO};
  line.begin_object();
  line.add_text("schema", "tsmalloc-trace-info/2");
  line.add("file_bytes", reader.file_bytes());
  line.add_bool("finished", reader.is_finished());
  line.add("events", events);
  line.begin_list("images");
  for (std::size_t i = 0; i < rows.size(); ++i) write_row(line, i, rows[i]);
  line.end_list();
  line.end_object();
  if (const int error = line.finish()) {
    refuse(problem, "cannot write: %s.", std::strerror(error));
    return fail(problem);
  }
  return 0;
}

int run(int argument_count, char** arguments) {
  if (argument_count == 2 && std::strcmp(arguments[1], "--help") == 0) {
    return std::fputs(help, stdout) < 0 ? exit_failed : 0;
  }
  const bool is_unpack = argument_count == 3 && std::strcmp(arguments[1], "unpack") == 0;
  const bool is_info = argument_count == 3 && std::strcmp(arguments[1], "info") == 0;
  if (!is_unpack && !is_info) {
    static_cast<void>(std::fputs(help, stderr));
    return exit_usage;
  }
  Reader reader;
  Problem problem;
  if (!reader.open(arguments[2], problem)) return fail(problem);
  return is_unpack ? unpack(reader) : info(reader);
}

}  // namespace
}  // namespace trace
}  // namespace ts

int main(int argument_count, char** arguments) { return ts::trace::run(argument_count, arguments); }
