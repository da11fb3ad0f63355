// `trace floors`: a plan with addresses, and what they are worth.
#include <algorithm>
#include <optional>
#include <string>

#include "trace/analyze/json.h"
#include "trace/analyze/report.h"
#include "trace/arguments.h"
#include "trace/choose.h"
#include "trace/commands.h"
#include "trace/floors/blocks.h"
#include "trace/floors/choice.h"
#include "trace/floors/planned.h"
#include "trace/format/reader.h"
#include "trace/output.h"
#include "trace/plan/planner.h"

namespace ts::trace {
namespace {

constexpr int exit_damaged = 1;  // plan and line are there nevertheless

constexpr const char* help =
    R"(usage: trace floors [options] -o PLAN FILE

Writes a plan of one image for `replay --schedule recorded --addresses`, in which each object has an
address that was chosen with the whole future known; and one line of JSON: the least memory that any
allocator needs for this trace, and what the plan needs.

  -o PLAN    the file to write
  --image N  the image (default: the one with the most events)
  --force    overwrite PLAN
)";

struct Sizes {
  std::uint64_t least = 0;  // rounded; 0 without blocks
  std::uint64_t most = 0;
  std::uint64_t resizes = 0;
};

Sizes sizes_of(const std::vector<Block>& blocks) {
  Sizes sizes;
  for (const Block& block : blocks) {
    sizes.least = sizes.least == 0 ? block.size() : std::min(sizes.least, block.size());
    sizes.most = std::max(sizes.most, block.size());
    if (block.previous != no_block) ++sizes.resizes;
  }
  return sizes;
}

void write_outcome(Json& json, const Outcome& outcome) {
  json.add("span_bytes", outcome.span_bytes);
  json.add("touched_bytes", outcome.pages * page_bytes);
  json.add("moves", outcome.moves);
  json.add("copied_bytes", outcome.copied_bytes);
  json.add("modelled_misses", outcome.misses);
}

void write_result(Json& json, const plan::Image& planned, const Blocks& blocks,
                  const Choice& choice) {
  const Bound bound = lower_bound(blocks);
  const Sizes sizes = sizes_of(blocks.blocks);
  const Outcome& taken = choice.outcomes[choice.taken];
  json.add("blocks", blocks.blocks.size());
  json.add("resizes", sizes.resizes);
  json.add("left_out", planned.left_out);
  json.add("peak_live_bytes", planned.peak_live_bytes);
  json.add("bound_bytes", bound.bytes);
  json.add("bound_call", bound.call);
  json.add("smallest_bytes", sizes.least);
  json.add("largest_bytes", sizes.most);
  json.add("robson_bytes", robson_bytes(bound.bytes, sizes.least, sizes.most));
  json.add_text("strategy", taken.strategy);
  write_outcome(json, taken);
  json.begin_list("strategies");
  for (const Outcome& outcome : choice.outcomes) {
    json.begin_object();
    json.add_text("strategy", outcome.strategy);
    write_outcome(json, outcome);
    json.end_object();
  }
  json.end_list();
}

}  // namespace

int floors(Arguments arguments) {
  using Value = Option::Value;
  const Parsed parsed{
      "floors",
      arguments,
      {{"-o", Value::wanted}, {"--image", Value::wanted}, {"--force", Value::none}}};
  if (parsed.has("--help")) {
    Output output;
    output << help;
    output.finish();
    return 0;
  }
  const std::string path = parsed.file();
  if (!parsed.has("-o")) throw UsageError("name the plan to write: -o PLAN.");
  const std::string plan_path = parsed.text("-o", "");
  std::optional<std::uint32_t> number;
  if (parsed.has("--image")) {
    number = static_cast<std::uint32_t>(parsed.number("--image", 0, max_images));
  }
  Reader reader{path};
  reader.verify();
  const Image& image = choose_image(reader, number, path);
  PlanSettings settings;
  settings.image = image.number;
  settings.alone = true;  // forked children would have arenas of their own
  const PlanSummary summary = write_plan(reader, settings, plan_path, parsed.has("--force"));
  Json json;
  json.begin_object();
  json.add_text("schema", "tsmalloc-floors/1");
  write_trace(json, base_name(path), reader, image, {});
  plan::View view;
  plan::Problem problem;
  {
    plan::View bare;
    if (!bare.open(plan_path.c_str(), false, problem)) throw Error(problem.text);
    const Blocks blocks = blocks_of(bare, bare.image(0));
    const Choice choice = choose_plan(blocks.blocks);
    write_addresses(plan_path, blocks, choice.addresses);
    write_result(json, bare.image(0), blocks, choice);
  }
  if (!view.open(plan_path.c_str(), false, problem)) throw Error(problem.text);
  check_addresses(view, view.image(0));
  json.end_object();
  Output output;
  output << json.text() << '\n';
  output.finish();
  return reader.is_whole() && !summary.has_gaps ? 0 : exit_damaged;
}

}  // namespace ts::trace
