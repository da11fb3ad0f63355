// trace_seeds FOLDER: writes small traces for the fuzzer to begin with.
#include <cstdio>
#include <fstream>

#include "samples.h"

int main(int argument_count, char** arguments) {
  using namespace ts::trace::testing;
  if (argument_count != 2) return 1;
  int number = 0;
  for (const bool is_finished : {true, false}) {
    for (const std::size_t chunks : {0U, 1U, 3U}) {
      for (const std::size_t events : {1U, 4U, 40U}) {
        const Sample sample =
            make_sample(static_cast<std::uint64_t>(number), chunks, events, is_finished);
        std::ofstream file{std::string{arguments[1]} + "/seed-" + std::to_string(number++)};
        file.write(reinterpret_cast<const char*>(sample.bytes.data()),
                   static_cast<std::streamsize>(sample.bytes.size()));
        if (!file.flush()) {
          std::fprintf(stderr, "trace_seeds: cannot write into %s\n", arguments[1]);
          return 1;
        }
      }
    }
  }
  return 0;
}
