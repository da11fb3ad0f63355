// Feeds a fuzz target without a fuzzer, so that every build and every compiler compiles and tries
// it: with pseudo-random inputs, or with files such as a fuzzer's findings. It can also write the
// former as files, as seeds for a fuzzer.
//
//    PROGRAM [--inputs N] [--seed N] [--bytes N]
//    PROGRAM FILE...
//    PROGRAM --write FOLDER
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/target.h"
#include "programs/support/arguments.h"
#include "programs/support/random.h"

namespace {

using Bytes = std::vector<std::uint8_t>;
using ts::test::Random;

// Short and long inputs are equally likely.
Bytes generate(Random random, std::size_t most_bytes) {
  std::size_t bytes = 16;
  while (bytes < most_bytes && !random.one_in(5)) bytes *= 2;
  Bytes input(random.between(1, bytes < most_bytes ? bytes : most_bytes));
  for (std::uint8_t& byte : input) byte = static_cast<std::uint8_t>(random.next() >> 56);
  return input;
}

void try_input(const Bytes& input) { LLVMFuzzerTestOneInput(input.data(), input.size()); }

int try_files(int count, char** names) {
  for (int i = 0; i < count; ++i) {
    std::ifstream file{names[i], std::ios::binary};
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    if (!file) {
      std::fprintf(stderr, "cannot read %s\n", names[i]);
      return 2;
    }
    std::printf("%s: %zu bytes\n", names[i], text.size());
    std::fflush(stdout);
    try_input({text.begin(), text.end()});
  }
  return 0;
}

int write_files(const std::string& folder) {
  constexpr std::uint64_t count = 100;
  for (std::uint64_t seed = 0; seed < count; ++seed) {
    const Bytes input = generate(Random{seed}, 1024);
    std::ofstream file{folder + "/generated-" + std::to_string(seed), std::ios::binary};
    file.write(reinterpret_cast<const char*>(input.data()),
               static_cast<std::streamsize>(input.size()));
    if (!file.flush()) {
      std::fprintf(stderr, "cannot write into %s\n", folder.c_str());
      return 2;
    }
  }
  return 0;
}

}  // namespace

int main(int argument_count, char** arguments) {
  LLVMFuzzerInitialize(&argument_count, &arguments);
  if (argument_count == 3 && std::strcmp(arguments[1], "--write") == 0)
    return write_files(arguments[2]);
  if (argument_count > 1 && arguments[1][0] != '-')
    return try_files(argument_count - 1, arguments + 1);
  ts::test::Arguments options{argument_count, arguments,
                              "Tries a fuzz target with inputs that no fuzzer made."};
  const std::uint64_t inputs = options.number("inputs", 1000, "so many");
  const std::uint64_t seed = options.number("seed", 1, "of the first");
  const std::size_t most_bytes = options.number("bytes", 1024, "of each, at most");
  options.finish();
  for (std::uint64_t i = 0; i < inputs; ++i) try_input(generate(Random{seed + i}, most_bytes));
  if (ts::fuzz::report_totals()) return 0;
  std::puts("that is too little to prove anything");
  return 1;
}
