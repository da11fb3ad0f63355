// trace_seeds FOLDER: writes small traces as seeds for the fuzzer, as files and as plain chunks.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "native/synthetic.h"
#include "trace/reader.h"

int main(int argument_count, char** arguments) {
  using namespace ts::trace;
  if (argument_count != 2) return 1;
  const std::string folder = arguments[1];
  for (const std::uint64_t events : {10U, 100U, 1000U}) {
    const std::string seed = folder + "/seed-" + std::to_string(events);
    ts::replay::testing::write_synthetic(seed, {.events = events, .forks = 1, .execs = 1});
    std::string plain = "\1";
    {
      Reader reader;
      Problem problem;
      bool is_read = reader.open(seed.c_str(), problem);
      while (is_read && reader.next(problem) == Reader::ReadStatus::chunk) {
        plain.append(reinterpret_cast<const char*>(reader.plain().data()), reader.plain().size());
      }
    }
    std::ifstream file{seed, std::ios::binary};
    const std::string packed{std::istreambuf_iterator<char>{file}, {}};
    std::ofstream{seed, std::ios::binary} << '\0' << packed;
    if (!(std::ofstream{seed + "-plain", std::ios::binary} << plain).flush()) {
      std::fprintf(stderr, "trace_seeds: cannot write into %s\n", arguments[1]);
      return 1;
    }
  }
  return 0;
}
