// sample_trace KIND FILE: writes a trace whose contents are known to the tests in Python.
//
//   known       three images: one of each kind of event, a forked child, one that a program exec'ed
//   plausible   300,000 events of 4 threads
//   unfinished  like known, but the recorder was killed before its end
#include <cstdio>
#include <cstring>

#include "samples.h"

namespace {

using namespace ts::trace;

void write_known(Writer& writer) {
  Image image;
  image.program = "mother";
  image.allocator = "libc.so.6";
  writer.begin_image(image);
  const Event events[] = {{Kind::malloc, 0, 0, 0, 24, 100},
                          {Kind::calloc, 0, 0, 1, 48, 200},
                          {Kind::aligned, 12, 0, 2, 5, 300},
                          {Kind::realloc, 0, 0, 0, 4'096, 400},
                          {Kind::refused, 0, 0, 0, 1ULL << 62, 500},
                          {Kind::thread_begin, 0, 1, 0, 0, 600},
                          {Kind::free, 0, 1, 1, 0, 700},
                          {Kind::thread_end, 0, 1, 0, 0, 800},
                          {Kind::fork, 0, 0, 1, 0, 900}};
  for (const Event& event : events) writer.add(0, event);
  writer.flush();
  image.parent = 0;
  image.birth = Image::Birth::fork;
  image.fork_event = 8;
  image.first_object = 3;
  image.begin_ns = 1'000;
  writer.begin_image(image);
  writer.add(1, {Kind::free, 0, 0, 2, 0, 50});
  image.birth = Image::Birth::exec;
  image.parent = 1;
  image.first_object = 0;
  image.program = "daughter \"\xff\n";
  writer.begin_image(image);
  writer.end_image(1, Image::End::exec, 60);
  writer.end_image(0, Image::End::exited, 2'000'000);
  writer.end_image(2, Image::End::killed, 70);
}

void write_plausible(Writer& writer) {
  Image image;
  image.program = "plausible";
  writer.begin_image(image);
  ts::trace::testing::PlausibleEvents source{1, 4};
  for (int i = 0; i < 300'000; ++i) writer.add(0, source.next());
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count != 3) return 1;
  try {
    Writer writer = Writer(arguments[2], true);
    if (std::strcmp(arguments[1], "plausible") == 0) {
      write_plausible(writer);
    } else {
      write_known(writer);
    }
    if (std::strcmp(arguments[1], "unfinished") != 0) writer.finish();
  } catch (const Error& error) {
    std::fprintf(stderr, "sample_trace: %s\n", error.what());
    return 1;
  }
  return 0;
}
