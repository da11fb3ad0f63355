// One function for each part of the schema; see report.h.
#include "trace/analyze/report.h"

#include <algorithm>
#include <utility>

namespace ts::trace {
namespace {

// More would make a page or a table that nobody reads; sums of what is left out are given.
constexpr std::size_t most_images = 1'000;
constexpr std::size_t most_damages = 100;
constexpr std::size_t most_sizes = 100;
constexpr std::size_t most_threads = 64;

void put_amount(Json& json, const char* name, const Amount& amount) {
  json.begin_object(name);
  json.add("objects", amount.objects);
  json.add("bytes", amount.bytes);
  json.end_object();
}

// --- the trace ----------------------------------------------------------------------------------

// Of an object that the caller has begun.
void write_image_fields(Json& json, const Image& image) {
  json.add("number", image.number);
  if (image.parent == no_image) {
    json.add_null("parent");
  } else {
    json.add("parent", image.parent);
  }
  json.add_text("birth", name(image.birth));
  json.add_text("program", image.program);
  json.add_text("allocator", image.allocator);
  json.add("events", image.events);
  json.add("objects", image.objects);
  json.add("threads", image.threads);
  json.add("begin_ns", image.begin_ns);
  json.add("end_ns", image.end_ns);
  json.add_text("end", name(image.end));
}

void write_damage(Json& json, const Reader& reader, const std::vector<Gap>& gaps) {
  json.begin_list("damage");
  std::size_t left = most_damages;
  for (const Damage& damage : reader.damage()) {
    if (left-- == 0) break;
    json.begin_object();
    json.add("offset", damage.offset);
    json.add("bytes", damage.bytes);
    json.add("events", damage.events);
    json.add_text("text", damage.text);
    json.end_object();
  }
  json.end_list();
  json.begin_list("gaps");
  left = most_damages;
  for (const Gap& gap : gaps) {
    if (left-- == 0) break;
    json.begin_object();
    json.add("first_event", gap.first_event);
    json.add("events", gap.events);
    json.add_text("text", gap.text);
    json.end_object();
  }
  json.end_list();
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
  const std::size_t kept = std::min(rows.size(), most_sizes);
  std::partial_sort(
      rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(kept), rows.end(),
      [&](const SizeRow& one, const SizeRow& other) {
        return std::pair{weight(other), one.size} < std::pair{weight(one), other.size};
      });
  rows.resize(kept);
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

void write_size_histogram(Json& json, const SizeCounts& sizes) {
  json.begin_list("histogram");
  for (const SizeBucket& bucket : buckets_of(sizes)) {
    json.add_row(bucket.upper, bucket.allocated.objects, bucket.allocated.bytes, bucket.resizes,
                 bucket.at_peak.objects, bucket.at_peak.bytes, bucket.left.objects,
                 bucket.left.bytes);
  }
  json.end_list();
}

void write_sizes(Json& json, const Analysis& analysis) {
  std::uint64_t distinct = 0;
  analysis.sizes.each([&](std::uint64_t, const SizeCount& count) {
    if (count.allocations > 0) ++distinct;
  });
  json.begin_object("sizes");
  json.add_bool("exact", analysis.sizes.is_exact());
  json.add("distinct", distinct);
  json.begin_list("top");
  for (const SizeRow& row :
       heaviest(analysis.sizes, [](const SizeRow& each) { return each.count.allocations; })) {
    json.add_row(row.size, row.count.allocations, row.count.resizes, row.count.at_peak,
                 row.count.left_own + row.count.left_inherited);
  }
  json.end_list();
  write_size_histogram(json, analysis.sizes);
  json.begin_list("alignments");
  for (std::size_t i = 0; i < analysis.alignments.size(); ++i) {
    if (analysis.alignments[i] > 0) json.add_row(1ULL << i, analysis.alignments[i]);
  }
  json.end_list();
  json.end_object();
}

// --- lifetimes ----------------------------------------------------------------------------------

constexpr std::pair<const char*, double> quantiles[] = {
    {"p01", 0.01}, {"p10", 0.10}, {"p25", 0.25}, {"p50", 0.50},
    {"p75", 0.75}, {"p90", 0.90}, {"p99", 0.99}, {"p999", 0.999}};

void write_quantiles(Json& json, const Histogram& histogram) {
  for (const auto& [name, share] : quantiles) json.add(name, histogram.quantile(share));
  json.add("max", histogram.highest());
}

void write_octaves(Json& json, const char* name, const Histogram& histogram) {
  json.begin_list(name);
  histogram.each_octave([&](std::uint64_t upper, const Amount& amount) {
    json.add_row(upper, amount.objects, amount.bytes);
  });
  json.end_list();
}

void write_lifetime(Json& json, const char* name, const Lifetimes& lifetimes) {
  json.begin_object(name);
  write_quantiles(json, lifetimes.histogram);
  write_octaves(json, "histogram", lifetimes.histogram);
  json.begin_list("by_size");
  lifetimes.by_size.each([&](std::uint64_t size, std::uint64_t lifetime, const Amount& amount) {
    json.add_row(size, lifetime, amount.objects, amount.bytes);
  });
  json.end_list();
  json.end_object();
}

void write_lifetimes(Json& json, const Analysis& analysis) {
  json.begin_object("lifetimes");
  json.add("objects", analysis.in_events.histogram.objects());
  write_lifetime(json, "ns", analysis.in_ns);
  write_lifetime(json, "events", analysis.in_events);
  write_lifetime(json, "bytes", analysis.in_bytes);
  json.end_object();
}

// --- peak, end, chains --------------------------------------------------------------------------

void write_peak(Json& json, const FirstReading& first, const Analysis& analysis) {
  json.begin_object("peak");
  if (first.peak_event) {
    json.add("event", *first.peak_event);
  } else {
    json.add_null("event");
  }
  json.add("time_ns", analysis.peak_ns);
  json.add("objects", analysis.at_peak.objects);
  json.add("bytes", analysis.at_peak.bytes);
  put_amount(json, "inherited", analysis.inherited_at_peak);
  json.begin_list("by_size");
  for (const SizeRow& row : heaviest(
           analysis.sizes, [](const SizeRow& each) { return each.size * each.count.at_peak; })) {
    json.add_row(row.size, row.count.at_peak, row.size * row.count.at_peak);
  }
  json.end_list();
  json.begin_list("by_thread");
  std::vector<std::pair<std::uint64_t, std::size_t>> order;
  for (std::size_t i = 0; i < analysis.threads.size(); ++i) {
    if (analysis.threads[i].at_peak.objects > 0)
      order.emplace_back(analysis.threads[i].at_peak.bytes, i);
  }
  std::sort(order.begin(), order.end(), [](const auto& one, const auto& other) {
    return std::pair{other.first, one.second} < std::pair{one.first, other.second};
  });
  order.resize(std::min(order.size(), most_threads));
  for (const auto& [bytes, thread] : order) {
    json.add_row(thread, analysis.threads[thread].at_peak.objects, bytes);
  }
  json.end_list();
  json.end_object();
}

void write_left(Json& json, const Analysis& analysis) {
  json.begin_object("left");
  put_amount(json, "own", analysis.left_own);
  put_amount(json, "inherited", analysis.left_inherited);
  json.begin_list("by_size");
  const auto bytes = [](const SizeRow& row) {
    return row.size * (row.count.left_own + row.count.left_inherited);
  };
  for (const SizeRow& row : heaviest(analysis.sizes, bytes)) {
    json.add_row(row.size, row.count.left_own, row.count.left_inherited, bytes(row));
  }
  json.end_list();
  json.end_object();
}

void write_growth(Json& json, const char* name, const Histogram& histogram) {
  json.begin_object(name);
  json.add("objects", histogram.objects());
  write_quantiles(json, histogram);
  write_octaves(json, "histogram", histogram);
  json.end_object();
}

void write_chains(Json& json, const Analysis& analysis) {
  const Chains& chains = analysis.chains;
  json.begin_object("chains");
  json.add("resizes", chains.resizes);
  json.add("shrunk", chains.shrunk);
  json.add("unchanged", chains.unchanged);
  json.add("grown", chains.grown);
  json.add("from_zero", chains.from_zero);
  json.add("objects", chains.lengths.objects());
  json.add("longest", chains.longest);
  write_octaves(json, "lengths", chains.lengths);
  write_growth(json, "step_growth_thousandths", chains.step_growth);
  write_growth(json, "growth_thousandths", chains.growth);
  json.end_object();
}

// --- over time, by thread, by allocator ---------------------------------------------------------

void write_curve(Json& json, const Analysis& analysis) {
  json.begin_list("curve");
  for (const CurvePoint& point : analysis.curve) {
    json.add_row(point.event, point.time_ns, point.live_bytes, point.highest_bytes,
                 point.live_objects);
  }
  json.end_list();
}

void write_threads(Json& json, const Analysis& analysis) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < analysis.threads.size(); ++i) {
    if (analysis.threads[i].events > 0) order.push_back(i);
  }
  json.add("threads_seen", order.size());
  if (order.size() > most_threads) {
    std::partial_sort(order.begin(), order.begin() + most_threads, order.end(),
                      [&](std::size_t one, std::size_t other) {
                        return std::pair{analysis.threads[other].events, one} <
                               std::pair{analysis.threads[one].events, other};
                      });
    order.resize(most_threads);
    std::sort(order.begin(), order.end());
  }
  json.begin_list("threads");
  for (const std::size_t i : order) {
    const ThreadSums& thread = analysis.threads[i];
    json.begin_object();
    json.add("thread", i);
    json.add("events", thread.events);
    put_amount(json, "allocations", thread.allocations);
    json.add("resizes", thread.resizes);
    put_amount(json, "frees", thread.frees);
    put_amount(json, "foreign_frees", thread.foreign_frees);
    put_amount(json, "given_away", thread.given_away);
    json.add("temporaries", thread.temporaries);
    put_amount(json, "left", thread.live);
    json.add("first_ns", thread.first_ns);
    json.add("last_ns", thread.last_ns);
    json.end_object();
  }
  json.end_list();
}

// For each row of the histogram: bytes of blocks in all, and at the peak.
void write_usable_by_size(Json& json, const SizeCounts& sizes, const Classes& allocator) {
  std::vector<SizeBucket> usable = buckets_of(sizes);
  std::size_t row = 0;
  for (SizeBucket& bucket : usable) bucket.allocated.bytes = bucket.at_peak.bytes = 0;
  sizes.each([&](std::uint64_t size, const SizeCount& count) {
    while (usable[row].upper < size) ++row;
    usable[row].allocated.bytes += allocator.usable(size) * count.allocations;
    usable[row].at_peak.bytes += allocator.usable(size) * count.at_peak;
  });
  json.begin_list("by_size");
  for (const SizeBucket& bucket : usable) {
    json.add_row(bucket.allocated.bytes, bucket.at_peak.bytes);
  }
  json.end_list();
}

void write_waste(Json& json, const Analysis& analysis, const std::vector<Classes>& classes) {
  json.begin_list("predicted");
  for (const Classes& allocator : classes) {
    const PredictedBytes bytes = predict(analysis.sizes, allocator);
    json.begin_object();
    json.add_text("allocator", allocator.name());
    json.add("requested_all", bytes.requested_all);
    json.add("usable_all", bytes.usable_all);
    json.add("requested_at_peak", bytes.requested_at_peak);
    json.add("usable_at_peak", bytes.usable_at_peak);
    write_usable_by_size(json, analysis.sizes, allocator);
    json.end_object();
  }
  json.end_list();
}

void write_calls(Json& json, const Analysis& analysis) {
  json.begin_object("calls");
  for (std::size_t i = 0; i < analysis.calls.size(); ++i) {
    json.add(name(static_cast<Kind>(i)), analysis.calls[i]);
  }
  json.end_object();
}

void write_sums(Json& json, const FirstReading& first, const Analysis& analysis) {
  json.add("events", first.events);
  json.add("duration_ns", first.last_ns);
  write_calls(json, analysis);
  put_amount(json, "allocations", analysis.allocations);
  json.add("grown_bytes", analysis.grown_bytes);
  json.add("shrunk_bytes", analysis.shrunk_bytes);
  json.add("refused_bytes", analysis.refused_bytes);
  put_amount(json, "inherited", first.inherited);
  json.add_bool("knows_inherited", first.knows_inherited);
  json.add("unknown_frees", analysis.unknown_frees);
  json.add("unknown_resizes", analysis.unknown_resizes);
  put_amount(json, "frees", analysis.frees);
  put_amount(json, "inherited_frees", analysis.inherited_frees);
  put_amount(json, "cross_thread_frees", analysis.cross_thread_frees);
  put_amount(json, "temporaries", analysis.temporaries);
}

}  // namespace

void write_trace(Json& json, const std::string& trace, const Reader& reader, const Image& image,
                 const std::vector<Gap>& gaps) {
  json.add_text("trace", trace);
  json.add("bytes", reader.file_bytes());
  json.add_bool("whole", reader.is_whole() && gaps.empty());
  write_damage(json, reader, gaps);
  json.add("images_seen", reader.images().size());
  json.begin_list("images");
  std::size_t left = most_images;
  for (const Image& each : reader.images()) {
    if (left-- == 0) break;
    json.begin_object();
    write_image_fields(json, each);
    json.end_object();
  }
  json.end_list();
  json.begin_object("image");
  write_image_fields(json, image);
  json.end_object();
}

void write_report(Json& json, const Report& report) {
  const Analysis& analysis = report.analysis;
  json.begin_object();
  json.add_text("schema", "tsmalloc-analysis/1");
  write_trace(json, report.trace, report.reader, report.image, report.first.gaps);
  write_sums(json, report.first, analysis);
  write_sizes(json, analysis);
  write_lifetimes(json, analysis);
  write_peak(json, report.first, analysis);
  write_left(json, analysis);
  write_chains(json, analysis);
  write_curve(json, analysis);
  write_threads(json, analysis);
  write_waste(json, analysis, report.classes);
  json.end_object();
}

}  // namespace ts::trace
