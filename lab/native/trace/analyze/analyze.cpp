// `trace analyze`: the analysis as one line of JSON, schema "tsmalloc-analysis/1";
// docs/formats/trace.md lists its fields. One function for each part of the schema.
//
// Why it exists: tables and figures are Python's affair; every number that they show is here.
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/json_line.h"
#include "common/system.h"
#include "trace/analyze/analysis.h"
#include "trace/analyze/classes.h"
#include "trace/analyze/first_reading.h"
#include "trace/arguments.h"
#include "trace/choose.h"
#include "trace/format/reader.h"
#include "trace/output.h"

namespace ts::trace {
namespace {

// More would make a page or a table too long to read; sums of what is left out are given.
constexpr std::size_t most_images = 1'000;
constexpr std::size_t most_damages = 100;
constexpr std::size_t most_sizes = 100;
constexpr std::size_t most_threads = 64;

template <typename Item>
std::span<const Item> first_of(const std::vector<Item>& all, std::size_t most) {
  return std::span{all}.first(std::min(all.size(), most));
}

void put_amount(JsonLine& line, const char* name, const Amount& amount) {
  line.begin_object(name);
  line.add("objects", amount.objects);
  line.add("bytes", amount.bytes);
  line.end_object();
}

// --- the trace ----------------------------------------------------------------------------------

// Of an object that the caller has begun.
void write_image_fields(JsonLine& line, const Image& image) {
  line.add("number", image.number);
  line.add_if(image.parent != no_image, "parent", image.parent);
  line.add_text("birth", name(image.birth));
  line.add_text("program", image.program);
  line.add_text("allocator", image.allocator);
  line.add("events", image.events);
  line.add("objects", image.objects);
  line.add("threads", image.threads);
  line.add("begin_ns", image.begin_ns);
  line.add("end_ns", image.end_ns);
  line.add_text("end", name(image.end));
}

void write_damage(JsonLine& line, const Reader& reader, const std::vector<Gap>& gaps) {
  line.begin_list("damage");
  for (const Damage& damage : first_of(reader.damage(), most_damages)) {
    line.begin_object();
    line.add("offset", damage.offset);
    line.add("bytes", damage.bytes);
    line.add("events", damage.events);
    line.add_text("text", damage.text);
    line.end_object();
  }
  line.end_list();
  line.begin_list("gaps");
  for (const Gap& gap : first_of(gaps, most_damages)) {
    line.begin_object();
    line.add("first_event", gap.first_event);
    line.add("events", gap.events);
    line.add_text("text", gap.text);
    line.end_object();
  }
  line.end_list();
}

// Its file, the damage, the images, and which of them it is about.
void write_trace(JsonLine& line, const std::string& trace, const Reader& reader, const Image& image,
                 const std::vector<Gap>& gaps) {
  line.add_text("trace", trace);
  line.add("bytes", reader.file_bytes());
  line.add_bool("whole", reader.is_whole() && gaps.empty());
  write_damage(line, reader, gaps);
  line.add("images_seen", reader.images().size());
  line.begin_list("images");
  for (const Image& each : first_of(reader.images(), most_images)) {
    line.begin_object();
    write_image_fields(line, each);
    line.end_object();
  }
  line.end_list();
  line.begin_object("image");
  write_image_fields(line, image);
  line.end_object();
}

// --- sizes --------------------------------------------------------------------------------------

struct SizeRow {
  std::uint64_t size;
  SizeCount count;
};

// The rows for which `weight` is highest, highest first; those of equal weight by size.
template <typename Weight>
std::vector<SizeRow> heaviest(const SizeCounts& sizes, Weight weight) {
  std::vector<SizeRow> rows;
  sizes.each([&](std::uint64_t size, const SizeCount& count) {
    if (weight(SizeRow{size, count}) > 0) rows.push_back({size, count});
  });
  std::ranges::stable_sort(rows, std::greater{}, weight);  // from their order by size
  rows.resize(std::min(rows.size(), most_sizes));
  return rows;
}

struct SizeBucket {
  std::uint64_t upper = 0;
  std::uint64_t resizes = 0;
  Amount allocated;
  Amount at_peak;
  Amount left;
};

// An eighth of an octave each; only those in which there is something.
std::vector<SizeBucket> buckets_of(const SizeCounts& sizes) {
  std::vector<SizeBucket> buckets;
  sizes.each([&](std::uint64_t size, const SizeCount& count) {
    const std::uint64_t upper = Eighths::upper(Eighths::index(size));
    if (buckets.empty() || buckets.back().upper != upper) buckets.emplace_back().upper = upper;
    SizeBucket& bucket = buckets.back();
    const auto add = [size](Amount& amount, std::uint64_t objects) {
      amount.objects += objects;
      amount.bytes += size * objects;
    };
    bucket.resizes += count.resizes;
    add(bucket.allocated, count.allocations);
    add(bucket.at_peak, count.at_peak);
    add(bucket.left, count.left_own + count.left_inherited);
  });
  return buckets;
}

void write_size_histogram(JsonLine& line, const SizeCounts& sizes) {
  line.begin_list("histogram");
  for (const SizeBucket& bucket : buckets_of(sizes)) {
    line.add_row(bucket.upper, bucket.allocated.objects, bucket.allocated.bytes, bucket.resizes,
                 bucket.at_peak.objects, bucket.at_peak.bytes, bucket.left.objects,
                 bucket.left.bytes);
  }
  line.end_list();
}

void write_sizes(JsonLine& line, const Analysis& analysis) {
  std::uint64_t distinct = 0;
  analysis.sizes.each([&](std::uint64_t, const SizeCount& count) {
    if (count.allocations > 0) ++distinct;
  });
  line.begin_object("sizes");
  line.add_bool("exact", analysis.sizes.is_exact());
  line.add("distinct", distinct);
  line.begin_list("top");
  for (const SizeRow& row :
       heaviest(analysis.sizes, [](const SizeRow& each) { return each.count.allocations; })) {
    line.add_row(row.size, row.count.allocations, row.count.resizes, row.count.at_peak,
                 row.count.left_own + row.count.left_inherited);
  }
  line.end_list();
  write_size_histogram(line, analysis.sizes);
  line.begin_list("alignments");
  for (std::size_t i = 0; i < analysis.alignments.size(); ++i) {
    if (analysis.alignments[i] > 0) line.add_row(1ULL << i, analysis.alignments[i]);
  }
  line.end_list();
  line.end_object();
}

// --- lifetimes ----------------------------------------------------------------------------------

constexpr std::pair<const char*, double> quantiles[] = {
    {"p01", 0.01}, {"p10", 0.10}, {"p25", 0.25}, {"p50", 0.50},
    {"p75", 0.75}, {"p90", 0.90}, {"p99", 0.99}, {"p999", 0.999}};

void write_quantiles(JsonLine& line, const Histogram& histogram) {
  for (const auto& [name, share] : quantiles) line.add(name, histogram.quantile(share));
  line.add("max", histogram.highest());
}

void write_octaves(JsonLine& line, const char* name, const Histogram& histogram) {
  line.begin_list(name);
  histogram.each_octave([&](std::uint64_t upper, const Amount& amount) {
    line.add_row(upper, amount.objects, amount.bytes);
  });
  line.end_list();
}

void write_lifetime(JsonLine& line, const char* name, const Lifetimes& lifetimes) {
  line.begin_object(name);
  write_quantiles(line, lifetimes.histogram);
  write_octaves(line, "histogram", lifetimes.histogram);
  line.begin_list("by_size");
  lifetimes.by_size.each([&](std::uint64_t size, std::uint64_t lifetime, const Amount& amount) {
    line.add_row(size, lifetime, amount.objects, amount.bytes);
  });
  line.end_list();
  line.end_object();
}

void write_lifetimes(JsonLine& line, const Analysis& analysis) {
  line.begin_object("lifetimes");
  line.add("objects", analysis.in_events.histogram.objects());
  write_lifetime(line, "ns", analysis.in_ns);
  write_lifetime(line, "events", analysis.in_events);
  write_lifetime(line, "bytes", analysis.in_bytes);
  line.end_object();
}

// --- peak, end, chains --------------------------------------------------------------------------

void write_peak(JsonLine& line, const FirstReading& first, const Analysis& analysis) {
  line.begin_object("peak");
  line.add_if(first.peak_event.has_value(), "event", first.peak_event.value_or(0));
  line.add("time_ns", analysis.peak_ns);
  line.add("objects", analysis.at_peak.objects);
  line.add("bytes", analysis.at_peak.bytes);
  put_amount(line, "inherited", analysis.inherited_at_peak);
  line.begin_list("by_size");
  for (const SizeRow& row : heaviest(
           analysis.sizes, [](const SizeRow& each) { return each.size * each.count.at_peak; })) {
    line.add_row(row.size, row.count.at_peak, row.size * row.count.at_peak);
  }
  line.end_list();
  line.begin_list("by_thread");
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < analysis.threads.size(); ++i) {
    if (analysis.threads[i].at_peak.objects > 0) order.push_back(i);
  }
  std::ranges::stable_sort(order, std::greater{},
                           [&](std::size_t i) { return analysis.threads[i].at_peak.bytes; });
  for (const std::size_t i : first_of(order, most_threads)) {
    line.add_row(i, analysis.threads[i].at_peak.objects, analysis.threads[i].at_peak.bytes);
  }
  line.end_list();
  line.end_object();
}

void write_left(JsonLine& line, const Analysis& analysis) {
  line.begin_object("left");
  put_amount(line, "own", analysis.left_own);
  put_amount(line, "inherited", analysis.left_inherited);
  line.begin_list("by_size");
  const auto bytes = [](const SizeRow& row) {
    return row.size * (row.count.left_own + row.count.left_inherited);
  };
  for (const SizeRow& row : heaviest(analysis.sizes, bytes)) {
    line.add_row(row.size, row.count.left_own, row.count.left_inherited, bytes(row));
  }
  line.end_list();
  line.end_object();
}

void write_growth(JsonLine& line, const char* name, const Histogram& histogram) {
  line.begin_object(name);
  line.add("objects", histogram.objects());
  write_quantiles(line, histogram);
  write_octaves(line, "histogram", histogram);
  line.end_object();
}

void write_chains(JsonLine& line, const Analysis& analysis) {
  const Chains& chains = analysis.chains;
  line.begin_object("chains");
  line.add("resizes", chains.resizes);
  line.add("shrunk", chains.shrunk);
  line.add("unchanged", chains.unchanged);
  line.add("grown", chains.grown);
  line.add("from_zero", chains.from_zero);
  line.add("objects", chains.lengths.objects());
  line.add("longest", chains.longest);
  write_octaves(line, "lengths", chains.lengths);
  write_growth(line, "step_growth_thousandths", chains.step_growth);
  write_growth(line, "growth_thousandths", chains.growth);
  line.end_object();
}

// --- over time, by thread, by allocator ---------------------------------------------------------

void write_curve(JsonLine& line, const Analysis& analysis) {
  line.begin_list("curve");
  for (const CurvePoint& point : analysis.curve) {
    line.add_row(point.event, point.time_ns, point.live_bytes, point.highest_bytes,
                 point.live_objects);
  }
  line.end_list();
}

void write_threads(JsonLine& line, const Analysis& analysis) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < analysis.threads.size(); ++i) {
    if (analysis.threads[i].events > 0) order.push_back(i);
  }
  line.add("threads_seen", order.size());
  if (order.size() > most_threads) {
    std::ranges::stable_sort(order, std::greater{},
                             [&](std::size_t i) { return analysis.threads[i].events; });
    order.resize(most_threads);
    std::ranges::sort(order);
  }
  line.begin_list("threads");
  for (const std::size_t i : order) {
    const ThreadSums& thread = analysis.threads[i];
    line.begin_object();
    line.add("thread", i);
    line.add("events", thread.events);
    put_amount(line, "allocations", thread.allocations);
    line.add("resizes", thread.resizes);
    put_amount(line, "frees", thread.frees);
    put_amount(line, "foreign_frees", thread.foreign_frees);
    put_amount(line, "given_away", thread.given_away);
    line.add("temporaries", thread.temporaries);
    put_amount(line, "left", thread.live);
    line.add("first_ns", thread.first_ns);
    line.add("last_ns", thread.last_ns);
    line.end_object();
  }
  line.end_list();
}

// The sizes in an allocator's classes: bytes of blocks, to be held against the bytes requested, in
// all and for each row of the histogram. Alignment is not looked at.
void write_predicted(JsonLine& line, const SizeCounts& sizes, const Classes& allocator) {
  std::vector<SizeBucket> usable = buckets_of(sizes);
  SizeBucket requested;
  SizeBucket all;
  for (SizeBucket& bucket : usable) {
    requested.allocated.bytes += std::exchange(bucket.allocated.bytes, 0);
    requested.at_peak.bytes += std::exchange(bucket.at_peak.bytes, 0);
  }
  std::size_t row = 0;
  sizes.each([&](std::uint64_t size, const SizeCount& count) {
    while (usable[row].upper < size) ++row;
    const std::uint64_t bytes = allocator.usable(size);
    usable[row].allocated.bytes += bytes * count.allocations;
    usable[row].at_peak.bytes += bytes * count.at_peak;
    all.allocated.bytes += bytes * count.allocations;
    all.at_peak.bytes += bytes * count.at_peak;
  });
  line.begin_object();
  line.add_text("allocator", allocator.name());
  line.add("requested_all", requested.allocated.bytes);
  line.add("usable_all", all.allocated.bytes);
  line.add("requested_at_peak", requested.at_peak.bytes);
  line.add("usable_at_peak", all.at_peak.bytes);
  line.begin_list("by_size");
  for (const SizeBucket& bucket : usable) {
    line.add_row(bucket.allocated.bytes, bucket.at_peak.bytes);
  }
  line.end_list();
  line.end_object();
}

void write_calls(JsonLine& line, const Analysis& analysis) {
  line.begin_object("calls");
  for (std::size_t i = 0; i < analysis.calls.size(); ++i) {
    line.add(name(static_cast<Kind>(i)), analysis.calls[i]);
  }
  line.end_object();
}

void write_sums(JsonLine& line, const FirstReading& first, const Analysis& analysis) {
  line.add("events", first.events);
  line.add("duration_ns", first.last_ns);
  write_calls(line, analysis);
  put_amount(line, "allocations", analysis.allocations);
  line.add("grown_bytes", analysis.grown_bytes);
  line.add("shrunk_bytes", analysis.shrunk_bytes);
  line.add("refused_bytes", analysis.refused_bytes);
  put_amount(line, "inherited", first.inherited);
  line.add_bool("knows_inherited", first.knows_inherited);
  line.add("unknown_frees", analysis.unknown_frees);
  line.add("unknown_resizes", analysis.unknown_resizes);
  put_amount(line, "frees", analysis.frees);
  put_amount(line, "inherited_frees", analysis.inherited_frees);
  put_amount(line, "cross_thread_frees", analysis.cross_thread_frees);
  put_amount(line, "temporaries", analysis.temporaries);
}

// --- the sub-command ----------------------------------------------------------------------------

constexpr int exit_damaged = 1;  // the line is there nevertheless

constexpr std::string_view help =
    R"(usage: trace analyze [options] FILE

Writes one line of JSON about what an image of the trace did with its memory: sizes, lifetimes, the
peak, what is left at the end. A damaged trace is analysed as far as it is intact.

  --image N       the image (default: the one with the most events)
  --classes FILE  size classes of allocators, to predict what each would waste
)";

constexpr std::string_view options[] = {"--image=", "--classes="};

int analyze(const Parsed& parsed) {
  const std::string path = parsed.file();
  std::vector<Classes> classes;
  if (parsed.has("--classes")) classes = read_classes(parsed.text("--classes", ""));
  const Reader reader{path};
  const Image& image = choose_image(reader, parsed.image(), path);
  const FirstReading first = first_reading(reader, image);
  const Analysis analysis = analyse(reader, image, first);
  JsonLine line{STDOUT_FILENO};
  line.begin_object();
  line.add_text("schema", "tsmalloc-analysis/1");
  write_trace(line, base_name(path.c_str()), reader, image, first.gaps);
  write_sums(line, first, analysis);
  write_sizes(line, analysis);
  write_lifetimes(line, analysis);
  write_peak(line, first, analysis);
  write_left(line, analysis);
  write_chains(line, analysis);
  write_curve(line, analysis);
  write_threads(line, analysis);
  line.begin_list("predicted");
  for (const Classes& allocator : classes) write_predicted(line, analysis.sizes, allocator);
  line.end_list();
  line.end_object();
  finish(line);
  return reader.is_whole() && first.gaps.empty() ? 0 : exit_damaged;
}

}  // namespace

const Command analyze_command{"analyze", "what a program did with its memory", help, options,
                              analyze};

}  // namespace ts::trace
