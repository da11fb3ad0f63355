// See choice.h.
#include "trace/floors/choice.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "trace/floors/locality.h"

namespace ts::trace {
namespace {

constexpr std::uint64_t tolerance_in_percent = 1;

std::uint64_t touched_pages(const std::vector<Block>& blocks, const Addresses& addresses) {
  std::vector<bool> is_touched;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].bytes == 0) continue;
    const std::uint64_t last = (addresses[i] + blocks[i].bytes - 1) / page_bytes;
    if (last >= is_touched.size()) is_touched.resize(std::max(last + 1, 2 * is_touched.size()));
    for (std::uint64_t page = addresses[i] / page_bytes; page <= last; ++page) {
      is_touched[page] = true;
    }
  }
  return static_cast<std::uint64_t>(std::count(is_touched.begin(), is_touched.end(), true));
}

struct Candidate {
  std::string name;
  std::function<Addresses()> plan;
};

// `merged` is without blocks where nothing is resized.
std::vector<Candidate> candidates(const std::vector<Block>& blocks, const Merged& merged) {
  using Strategy = Addresses (*)(const std::vector<Block>&);
  const std::pair<const char*, Strategy> strategies[] = {
      {"lowest fit", [](const std::vector<Block>& all) { return sweep(all, Fit::lowest); }},
      {"best fit", [](const std::vector<Block>& all) { return sweep(all, Fit::best); }},
      {"around the peak", around_peak},
      {"around the peak, backwards", around_peak_backwards},
      {"largest first", largest_first},
  };
  std::vector<Candidate> found;
  for (const auto& [name, strategy] : strategies) {
    if (strategy == largest_first && blocks.size() > most_by_size) continue;
    found.push_back({name, [&blocks, strategy = strategy] { return strategy(blocks); }});
    if (merged.blocks.empty()) continue;
    found.push_back({std::string{name} + ", room for growth", [&merged, strategy = strategy] {
                       const Addresses wide = strategy(merged.blocks);
                       Addresses addresses(merged.of.size());
                       for (std::size_t i = 0; i < addresses.size(); ++i) {
                         addresses[i] = wide[merged.of[i]];
                       }
                       return addresses;
                     }});
  }
  return found;
}

std::size_t best_of(const std::vector<Outcome>& outcomes) {
  std::uint64_t fewest = std::numeric_limits<std::uint64_t>::max();
  for (const Outcome& outcome : outcomes) fewest = std::min(fewest, outcome.pages);
  std::size_t best = outcomes.size();
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].pages * 100 > fewest * (100 + tolerance_in_percent)) continue;
    if (best == outcomes.size() || outcomes[i].cost_ns() < outcomes[best].cost_ns()) best = i;
  }
  return best;
}

}  // namespace

Outcome judge(const std::vector<Block>& blocks, const Addresses& addresses) {
  Outcome outcome;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Block& block = blocks[i];
    outcome.span_bytes = std::max(outcome.span_bytes, addresses[i] + block.size());
    if (block.previous != no_block && addresses[block.previous] != addresses[i]) {
      ++outcome.moves;
      outcome.copied_bytes += std::min(block.bytes, blocks[block.previous].bytes);
    }
  }
  outcome.pages = touched_pages(blocks, addresses);
  outcome.misses = modelled_misses(blocks, addresses);
  return outcome;
}

Choice choose_plan(const std::vector<Block>& blocks) {
  const bool has_resizes = std::any_of(
      blocks.begin(), blocks.end(), [](const Block& block) { return block.previous != no_block; });
  const Merged merged = has_resizes ? merge_chains(blocks) : Merged{};
  const std::vector<Candidate> all = candidates(blocks, merged);
  Choice choice;
  // One plan at a time: they are large. The one that is taken is made again.
  for (const Candidate& candidate : all) {
    choice.outcomes.push_back(judge(blocks, candidate.plan()));
    choice.outcomes.back().strategy = candidate.name;
  }
  choice.taken = best_of(choice.outcomes);
  choice.addresses = all[choice.taken].plan();
  return choice;
}

}  // namespace ts::trace
