// Reading and looking up classes; see classes.h.
#include "trace/analyze/classes.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

#include "trace/format/error.h"

namespace ts::trace {
namespace {

constexpr std::uint64_t largest = 1ULL << 48;  // keeps all sums small

[[noreturn]] void fail(const std::string& path, std::size_t line, std::string_view what) {
  throw Error(
      path + ", line " + std::to_string(line) + ": " + std::string{what} +
      ". Have it written by `tsmalloc analyze`, or see docs/formats/trace.md for its form.");
}

Classes::Run parse_run(std::istringstream& words, const std::string& path, std::size_t line) {
  Classes::Run run{};
  std::string rest;
  if (!(words >> run.first >> run.step >> run.count >> run.slack) || words >> rest) {
    fail(path, line, "a run has four numbers");
  }
  if (run.count == 0 || run.step == 0 || run.first > largest || run.step > largest ||
      run.slack > largest || run.count > largest / run.step) {
    fail(path, line, "a run's numbers are too large, or its step or count is 0");
  }
  return run;
}

}  // namespace

std::uint64_t Classes::usable(std::uint64_t size) const {
  const auto after =
      std::lower_bound(runs_.begin(), runs_.end(), size,
                       [](const Run& run, std::uint64_t wanted) { return run.last() < wanted; });
  const Run& run = after == runs_.end() ? runs_.back() : *after;
  if (size <= run.first) return run.first + run.slack;
  const std::uint64_t steps = (size - run.first + run.step - 1) / run.step;
  return run.first + steps * run.step + run.slack;
}

std::vector<Classes> read_classes(const std::string& path) {
  std::ifstream file{path};
  if (!file) throw Error(path + " cannot be read. Name a file of size classes.");
  std::vector<Classes> found;
  std::string name;
  std::vector<Classes::Run> runs;
  std::size_t line = 0;
  const auto finish = [&] {
    if (name.empty()) return;
    if (runs.empty()) fail(path, line, "an allocator without a run");
    found.emplace_back(name, std::move(runs));
    runs.clear();
  };
  for (std::string text; std::getline(file, text);) {
    ++line;
    std::istringstream words{text};
    std::string keyword;
    if (!(words >> keyword)) continue;
    if (keyword == "allocator") {
      finish();
      if (!(words >> name)) fail(path, line, "an allocator without a name");
    } else if (keyword == "run" && !name.empty()) {
      const Classes::Run run = parse_run(words, path, line);
      if (!runs.empty() && run.first <= runs.back().last()) fail(path, line, "runs do not rise");
      runs.push_back(run);
    } else {
      fail(path, line, "neither an allocator nor a run of one");
    }
  }
  finish();
  if (found.empty()) fail(path, line, "no allocator");
  return found;
}

}  // namespace ts::trace
